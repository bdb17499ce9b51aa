"""The public names, each imported on demand from its module, by `__init__.py` too."""

from keras_tfmr._files import ExportError as ExportError
from keras_tfmr.export.write import METADATA_FILE as METADATA_FILE
