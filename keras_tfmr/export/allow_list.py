"""The ops that a stock TensorFlow Serving 2.20 can run: TensorFlow's own and TensorFlow Text's.

The server links all ops of TensorFlow core and of TensorFlow Text, and no others. The core ops are
read from the registry of the installed TensorFlow, without those that are newer than the server and
those whose kernels need Python. TensorFlow Text's are listed here.
"""

from keras_tfmr import compat

# Registered in TensorFlow 2.21, unknown to 2.20.
_YOUNGER_THAN_SERVER = frozenset({"DecodeJxl", "_CopyFromGpuToHost", "_CopyFromHostToGpu"})

# The server has these ops, but only a Python process has kernels for them.
PYTHON_OPS = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless"})

# Attributes that 2.21 added to older ops. SavedModels omit them if they have their default value.
_YOUNGER_ATTRIBUTES = {"TensorListGetItem": frozenset({"Tshape"})}

TEXT_OPS = frozenset(
    """
    CaseFoldUTF8 ConstrainedSequence FastBertNormalize FastWordpieceTokenizeWithOffsets
    FindSourceOffsets MaxSpanningTree NormalizeUTF8 NormalizeUTF8WithOffsetsMap PhraseTokenize
    RegexSplitWithOffsets RougeL SentenceFragments SentenceFragmentsV2 SentencepieceDetokenizeOp
    SentencepieceIdToStringOp SentencepieceOp SentencepieceStringToIdOp SentencepieceTokenizeOp
    SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp SplitMergeTokenizeWithOffsets
    TokenizerFromLogits UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets
    WordpieceTokenizeWithOffsets TFText>BoiseTagsToOffsets TFText>ByteSplitByOffsets
    TFText>ByteSplitWithOffsets TFText>FastSentencepieceDetokenize TFText>FastSentencepieceTokenize
    TFText>FastWordpieceDetokenize TFText>NgramsStringJoin TFText>OffsetsToBoiseTags
    TFText>PhraseDetokenize TFText>RoundRobinGenerateMasks TFText>RoundRobinTrim TFText>Utf8Binarize
    TFText>WhitespaceTokenizeWithOffsetsV2
    """.split()  # noqa: SIM905
)


def core_ops():
    """Names of the ops of the installed TensorFlow that TensorFlow Serving 2.20 has, too.

    Call it in a process that has not loaded other op libraries, because the registry does not say
    where an op comes from. TensorFlow Text's ops are left out, whether they are loaded or not.
    """
    return frozenset(compat.registered_ops() - TEXT_OPS - _YOUNGER_THAN_SERVER - PYTHON_OPS)


def op_problem(node, served):
    """Why the server would refuse a NodeDef, as a sentence, or None if it would not.

    Args:
        node: A `NodeDef`.
        served: The names of the server's ops, a set.
    """
    if node.op in PYTHON_OPS:
        return f"{node.op} calls Python, which the server does not have"
    if node.op not in served:
        return f"{node.op} is not an op of TensorFlow Serving 2.20"
    younger = _YOUNGER_ATTRIBUTES.get(node.op, frozenset()) & set(node.attr)
    if younger:
        return (
            f"{node.op} has attributes that the server does not know: {', '.join(sorted(younger))}"
        )
    return None
