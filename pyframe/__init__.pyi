"""The public names as a type checker sees them; at run time they load on first use."""

from . import config as config
from . import exc as exc
from . import testing as testing
from .api import allow_in_graph as allow_in_graph
from .api import assume_constant_result as assume_constant_result
from .api import compile as compile
from .api import disable as disable
from .api import disallow_in_graph as disallow_in_graph
from .api import explain as explain
from .api import graph_break as graph_break
from .api import is_compiling as is_compiling
from .api import reset as reset
from .api import substitute_in_graph as substitute_in_graph
from .backends import list_backends as list_backends
from .backends import register_backend as register_backend
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
from .metrics import counters as counters
from .report.logs import set_logs as set_logs
from .stance import set_stance as set_stance
from .vars.torch_objects.error_on_graph_break import error_on_graph_break as error_on_graph_break

__version__: str
