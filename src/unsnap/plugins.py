"""A user's own networks, priors, methods, cameras, starts and iterations: a module that registers them when imported.

    # mine.py
    from unsnap.networks import NETWORKS

    @NETWORKS.named("my-network")
    class MyNetwork(nn.Module): ...

`unsnap reconstruct capture.mat --plugin mine.py --method trained.safetensors`; in Python, `import mine` is enough. A
package offers the same without `--plugin` by entry points in the groups `unsnap.networks`, `unsnap.priors`,
`unsnap.methods`, `unsnap.cameras`, `unsnap.starts` and `unsnap.iterations`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from unsnap.errors import InputError

LOADED: dict[str, None] = {}
"""What was loaded here, in order: other processes of the same work need it as well."""


def load_plugin(name: str | Path) -> ModuleType:
    """Import a module by its name, or a file that ends in .py by its path; once per process."""
    path = Path(name)
    try:
        module = _from_file(path) if path.suffix == ".py" else _module(str(name))
        LOADED[str(path.absolute()) if path.suffix == ".py" else str(name)] = None
        return module
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # a plug-in may raise anything when it is imported
        reason = str(error).splitlines()[0] if str(error) else ""
        raise InputError(
            f"the plug-in {name} cannot be loaded ({type(error).__name__}: {reason}); give a module or a FILE.py that "
            "Python can import"
        ) from error


def _module(name: str) -> ModuleType:
    """A module that is installed, or lies in the working directory."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def _from_file(path: Path) -> ModuleType:
    source = path.resolve()
    if not source.is_file():
        raise InputError(f"the plug-in {path} is not a file; give a module or a FILE.py")
    name = f"unsnap_plugin_{source.stem}_{abs(hash(str(source))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise InputError(f"the plug-in {path} is not a Python module; give a module or a FILE.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
