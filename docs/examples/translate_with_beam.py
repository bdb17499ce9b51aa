"""A file of any size, translated by an export on one machine or on many.

Apache Beam splits the file, makes the batches, repeats what a lost machine did, and writes the
parts of the output. Workers need tensorflow, tensorflow-text and apache-beam; neither Keras nor
this project. Without `--runner`, which names Flink, Spark or Dataflow, this process does all:

    python docs/examples/translate_with_beam.py models/pt_en/1 in.txt out.tsv
"""

import argparse
import logging

import apache_beam as beam
import tensorflow as tf
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions


class Translations(ModelHandler):
    """A signature of an export, which gives (text, translation) of each text."""

    def __init__(self, export, signature, batch_size):
        super().__init__(min_batch_size=1, max_batch_size=batch_size)
        self.export, self.signature = export, signature

    def load_model(self):
        import tensorflow_text  # noqa: F401 -- in each worker: the tokenizer's operations

        return tf.saved_model.load(self.export).signatures[self.signature]

    def run_inference(self, batch, model, inference_args=None):
        try:
            found = model(text=tf.constant([*batch]))["translation"].numpy()
        except tf.errors.OpError as error:  # of the whole batch: find the texts to blame
            if len(batch) > 1:
                halves = batch[: len(batch) // 2], batch[len(batch) // 2 :]
                return [answer for half in halves for answer in self.run_inference(half, model)]
            logging.warning("not translated: %r: %s", batch[0], error.message)
            return [(batch[0], None)]
        return [*zip(batch, found, strict=True)]


parser = argparse.ArgumentParser(epilog="Other options, such as --runner, are Beam's.")
parser.add_argument("export", help="version folder of an export; workers read it, too")
parser.add_argument("input", help="file or pattern; a text on each line")
parser.add_argument("output", help="prefix of the parts: source, tab, translation")
parser.add_argument("--signature", default="translate", choices=("translate", "translate_document"))
parser.add_argument("--batch_size", type=int, default=64, help="at most so many texts in a batch")
args, beams = parser.parse_known_args()
raw = beam.coders.BytesCoder()  # any bytes are valid texts
with beam.Pipeline(options=PipelineOptions(beams)) as pipeline:
    lines = pipeline | beam.io.ReadFromText(args.input, coder=raw)
    texts = lines | beam.Map(lambda line: line.replace(b"\t", b" "))
    answers = texts | RunInference(Translations(args.export, args.signature, args.batch_size))
    done = answers | beam.Filter(lambda answer: answer[1] is not None)
    done |= beam.Map(b"\t".join)
    done | beam.io.WriteToText(args.output, coder=raw)
    failed = answers | "failed" >> beam.Filter(lambda answer: answer[1] is None)
    failed |= "failed texts" >> beam.Map(lambda answer: answer[0])
    failed | "write failed" >> beam.io.WriteToText(f"{args.output}.failed", coder=raw)
