"""Which processes train together, read from the environment."""

import json
import os
from typing import NamedTuple

from training.run.files import RunError

# What `srun` sets for a process alone.
ONE_TASK_OF_SLURM = {
    "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "localhost",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}  # fmt: skip
PORT = 8888  # where TensorFlow's workers listen under SLURM


class Cluster(NamedTuple):
    """Workers by their addresses, and which of them this process is.

    >>> cluster_of({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, '
    ...                          '"task": {"type": "worker", "index": 1}}'})
    Cluster(addresses=('a:1', 'b:1'), index=1)
    """

    addresses: tuple
    index: int

    def resolver(self):
        """For TensorFlow's strategies."""
        import tensorflow as tf

        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list(self.addresses)}),
            task_type="worker", task_id=self.index, rpc_layer="grpc",
        )  # fmt: skip


def cluster_of(environment=os.environ, kind=None):
    """The `Cluster` that the environment describes, or None for one process alone.

    Args:
        environment: Of the process. `TF_CONFIG` as Kubeflow and Vertex set it: chief first, then
            the workers; evaluators and parameter servers are refused.
        kind: "slurm" for the variables that `srun` sets instead.

    Raises:
        RunError: If the variables are missing or cannot be read.
    """
    if kind == "slurm":
        return _slurm(environment)
    text = environment.get("TF_CONFIG")
    if not text:
        return None
    try:
        config = json.loads(text)
        hosts, task = config["cluster"], config["task"]
        groups = [name for name in ("chief", "master", "worker") if hosts.get(name)]
        addresses = [address for name in groups for address in hosts[name]]
        if strange := sorted(name for name in hosts if hosts[name] and name not in groups):
            raise RunError(
                f"TF_CONFIG has tasks of type {strange[0]!r}; expected only chief, master and "
                "worker"
            )
        before = sum(len(hosts[name]) for name in groups[: groups.index(task["type"])])
        index = before + int(task["index"])
        if not 0 <= index < len(addresses):
            raise ValueError(f"task {task} is none of {hosts}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"Cannot read TF_CONFIG ({error!r}). Received: {text}") from error
    return Cluster(tuple(addresses), index) if len(addresses) > 1 else None


def _slurm(environment):
    """The processes of all nodes; those of one node are on consecutive ports."""
    try:
        count, index = int(environment["SLURM_NTASKS"]), int(environment["SLURM_PROCID"])
        hosts = expand(environment["SLURM_STEP_NODELIST"])
        each = expand_counts(environment["SLURM_STEP_TASKS_PER_NODE"])
        port = int(environment.get("KERAS_TFMR_PORT", PORT))
        addresses = [
            f"{host}:{port + i}" for host, n in zip(hosts, each, strict=True) for i in range(n)
        ]
        if not 0 <= index < count == len(addresses):
            raise ValueError(f"task {index} of {count} on {addresses}")
    except (KeyError, ValueError) as error:
        raise RunError(
            f"--cluster slurm needs the variables that srun sets: start it with srun ({error!r})"
        ) from error
    return Cluster(tuple(addresses), index) if count > 1 else None


def expand(names):
    """The hosts of SLURM's short notation.

    >>> expand("gpu[1,08-10],login")
    ['gpu1', 'gpu08', 'gpu09', 'gpu10', 'login']
    """
    hosts, depth, word = [], 0, ""
    for letter in names + ",":
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            hosts += _expand_one(word)
            word = ""
        else:
            word += letter
    return hosts


def _expand_one(word):
    if "[" not in word:
        return [word] if word else []
    prefix, rest = word.split("[", 1)
    inside, suffix = rest.split("]", 1)
    numbers = []
    for part in inside.split(","):
        first, _, last = part.partition("-")
        last = last or first
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    tails = _expand_one(suffix) or [""]
    return [f"{prefix}{number}{tail}" for number in numbers for tail in tails]


def expand_counts(text):
    """Tasks of each node.

    >>> expand_counts("2(x3),1")
    [2, 2, 2, 1]
    """
    counts = []
    for part in text.split(","):
        number, _, times = part.partition("(x")
        counts += [int(number)] * (int(times.removesuffix(")")) if times else 1)
    return counts
