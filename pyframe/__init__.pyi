"""The public names as a type checker sees them; at run time they load on first use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Protocol

from . import config as config
from . import exc as exc
from . import testing as testing
from .api import allow_in_graph as allow_in_graph
from .api import assume_constant_result as assume_constant_result
from .api import compile as compile
from .api import compiled_autograd as compiled_autograd
from .api import disable as disable
from .api import disallow_in_graph as disallow_in_graph
from .api import explain as explain
from .api import graph_break as graph_break
from .api import is_compiling as is_compiling
from .api import reset as reset
from .api import substitute_in_graph as substitute_in_graph
from .backends import list_backends as list_backends
from .backends import register_backend as register_backend
from .backends import wait_for_kernels as wait_for_kernels
from .cache_artifacts import load_cache_artifacts as load_cache_artifacts
from .cache_artifacts import save_cache_artifacts as save_cache_artifacts
from .dynamic import mark_dynamic as mark_dynamic
from .dynamic import mark_static as mark_static
from .dynamic import mark_unbacked as mark_unbacked
from .dynamic import maybe_mark_dynamic as maybe_mark_dynamic
from .errors import BackendCompilerFailed as BackendCompilerFailed
from .errors import InternalError as InternalError
from .errors import PyframeError as PyframeError
from .errors import RecompileError as RecompileError
from .errors import RecompileLimitExceeded as RecompileLimitExceeded
from .errors import Unsupported as Unsupported
from .errors import UserError as UserError
from .export.exported import Exported as Exported
from .export.whole_graph import WholeGraph
from .metrics import counters as counters
from .packaging.errors import PackageError as PackageError
from .packaging.load import load as load
from .packaging.make import package as package
from .report.logs import set_logs as set_logs
from .stage_programs import stages as stages
from .stage_programs import transform as transform
from .stance import set_stance as set_stance
from .vars.torch_objects.error_on_graph_break import error_on_graph_break as error_on_graph_break
from .version import __version__ as __version__

class _Export(Protocol):
    """The module `pyframe.export`, which is callable."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Exported]: ...
    def load(self, path: str | PathLike[str], classes: Iterable[type] = ()) -> Exported: ...
    def whole_graph(
        self, function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
        dynamic: Any = None,
    ) -> WholeGraph: ...

export: _Export
