"""What the commands that train share: how a run ends, as an exit status."""

import signal
import sys

from training.run.files import RunError
from training.run.interrupts import Interrupts
from training.run.memory import keep_freed
from training.run.session import train


def run(program, settings, started, make_task):
    """Trains as the settings say; returns the exit status.

    Args:
        program: The name of the command, for errors.
        settings: A resolved `TrainingConfig`.
        started: `time.monotonic()` from which the budget of minutes counts.
        make_task: A function from the settings to the task.
    """
    keep_freed()
    interrupts = Interrupts()
    try:
        with interrupts:
            done = train(settings, started, interrupts, make_task)
    except RunError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to resume.", file=sys.stderr)
        return 128 + (interrupts.received or signal.SIGINT)
    return 0 if done else 128 + (interrupts.received or signal.SIGTERM)
