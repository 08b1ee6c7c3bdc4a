"""The operators, one family a file. Importing this package registers them all."""

import importlib as _importlib
import pkgutil as _pkgutil
import sys as _sys

for _module in _pkgutil.iter_modules(__path__):
    try:  # DEV ONLY: half-written families
        _importlib.import_module(f"{__name__}.{_module.name}")
    except Exception as _e:
        print("DEV", _module.name, type(_e).__name__, _e, file=_sys.stderr)
