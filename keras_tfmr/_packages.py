"""The versions of packages, as configs and exports record them."""

import importlib
import platform


def versions(*packages):
    """Returns {"python" or package: version, or None if it cannot be imported}.

    The modules themselves say it: the package that holds `tensorflow` may be `tensorflow-cpu`.
    """
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.import_module(package.replace("-", "_")).__version__
        except ImportError:
            found[package] = None
    return found
