"""What `__init__.py` imports on demand, for type checkers and editors; a test compares the two."""

from keras_tfmr.export.check import ExportError as ExportError
from keras_tfmr.export.check import check_saved_model as check_saved_model
from keras_tfmr.export.write import METADATA_FILE as METADATA_FILE
from keras_tfmr.export.write import export_text_model as export_text_model
