"""Writes the changes that `tools/fuzz_guards.py` makes as source text, for each kind of object that is changed."""

# what a class may be given: method -> bodies
SPECIAL = {
    "__bool__": ("lambda self: False",),
    "__len__": ("lambda self: 0", "lambda self: 3"),
    "__eq__": ("lambda self, other: True", "lambda self, other: False"),
    "__ne__": ("lambda self, other: True", "lambda self, other: False"),
    "__hash__": ("lambda self: 1", "None"),
    "__call__": ("lambda self, *args, **kwargs: 5",),
    "__getattr__": ("lambda self, name: 11",),
    "__getattribute__": ("lambda self, name: twist(object.__getattribute__(self, name))",),
    "__setattr__": ("lambda self, name, value: object.__setattr__(self, name, twist(value))",),
    "__contains__": ("lambda self, item: False", "lambda self, item: True"),
    "__iter__": ("lambda self: iter((1, 2))",),
    "__getitem__": ("lambda self, index: 3",),
    "__add__": ("lambda self, other: 5", "lambda self, other: NotImplemented"),
    "__radd__": ("lambda self, other: 6",),
    "__lt__": ("lambda self, other: True",),
    "__gt__": ("lambda self, other: True",),
    "__str__": ("lambda self: 'changed'",),
    "__repr__": ("lambda self: 'changed'",),
    "__format__": ("lambda self, spec: 'changed'",),
    "__index__": ("lambda self: 1",),
    "__enter__": ("lambda self: [4, 5, 6]",),
    "__exit__": ("lambda self, *exc: True",),
    "__init__": ("lambda self, *args, **kwargs: self.__dict__.update(n=9, m=9, value=9, size=9, items=[])",),
    "__new__": ("staticmethod(lambda cls, *args, **kwargs: 13)",),
    "__get__": ("lambda self, obj, owner=None: 8",),
    "__set__": ("lambda self, obj, value: None",),
    "__missing__": ("lambda self, key: 12",),
    "__reversed__": ("lambda self: iter((9,))",),
    "__class__": ("property(lambda self: int)",),
    "__match_args__": ("('right', 'left')", "()"),
    "__torch_function__": ("classmethod(lambda cls, fn, types, args=(), kwargs=None: 14)",),
    "__class_getitem__": ("classmethod(lambda cls, item: 3)",),
    "__subclasshook__": ("classmethod(lambda cls, other: True)",),
    "__doc__": ("'changed'",),
    "__name__": ("'Changed'",),
    "__qualname__": ("'Changed.deep'",),
    "__copy__": ("lambda self: 3",),
    "__post_init__": ("lambda self: self.__dict__.update(area=1, width=5)",),
    "__mul__": ("lambda self, other: 7",),
    "__rmul__": ("lambda self, other: 8",),
    "__matmul__": ("lambda self, other: 9",),
    "__iadd__": ("lambda self, other: 10",),
    "__neg__": ("lambda self: 11",),
    "__abs__": ("lambda self: 12",),
    "__int__": ("lambda self: 13",),
    "__float__": ("lambda self: 1.5",),
    "__le__": ("lambda self, other: False",),
    "__ge__": ("lambda self, other: False",),
    "__next__": ("lambda self: 14",),
    "__delattr__": ("lambda self, name: None",),
    "__dir__": ("lambda self: ['changed']",),
    "__deepcopy__": ("lambda self, memo: 15",),
    "__reduce_ex__": ("lambda self, protocol: (int, (16,))",),
    "__set_name__": ("lambda self, owner, name: None",),
    "__init_subclass__": ("classmethod(lambda cls, **kwargs: None)",),
    "__module__": ("'elsewhere'",),
    "__annotations__": ("{'a': int}",),
    "__setitem__": ("lambda self, key, value: None",),
    "__delete__": ("lambda self, obj: None",),
    "__mro_entries__": ("lambda self, bases: ()",),
}

OF_METACLASS = {
    "__instancecheck__": ("lambda cls, obj: True", "lambda cls, obj: False"),
    "__subclasscheck__": ("lambda cls, other: True", "lambda cls, other: False"),
    "__call__": ("lambda cls, *args, **kwargs: 15",),
    "__getattribute__": ("lambda cls, name: twist(type.__getattribute__(cls, name))",),
    "__getattr__": ("lambda cls, name: 16",),
    "__len__": ("lambda cls: 6",),
    "__contains__": ("lambda cls, item: True",),
    "__iter__": ("lambda cls: iter((1,))",),
    "__bool__": ("lambda cls: False",),
    "__eq__": ("lambda cls, other: False",),
}

SETTINGS = """
torch.set_default_dtype(torch.float64)
torch.set_default_device('meta')
torch.set_default_device('cpu')
torch.set_grad_enabled(False)
torch.inference_mode(True).__enter__()
torch.autocast('cpu', dtype=torch.bfloat16).__enter__()
torch.set_autocast_enabled('cpu', True)
torch.set_autocast_dtype('cpu', torch.float16)
torch.set_autocast_cache_enabled(False)
torch.autocast_increment_nesting()
torch.set_num_threads(2)
torch.use_deterministic_algorithms(True)
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = False
torch.set_float32_matmul_precision('medium')
torch.set_float32_matmul_precision('high')
torch.backends.cudnn.enabled = False
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.mkldnn.enabled = False
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_math_sdp(False)
torch.autograd.set_detect_anomaly(True)
torch.autograd.set_multithreading_enabled(False)
torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t).__enter__()
torch.autograd.graph.disable_saved_tensors_hooks('no hooks').__enter__()
torch.set_flush_denormal(True)
torch.manual_seed(99)
random.seed(99)
torch.rand(1)
random.random()
warnings.simplefilter('error')
warnings.simplefilter('ignore')
os.environ['MADE_UP'] = 'two'
os.environ.pop('MADE_UP', None)
os.environ.clear()
sys.modules.pop('made_up_module', None)
sys.modules['made_up_module'] = types.SimpleNamespace(value=50, fn=lambda x: x - 9, deep=made_up.deep)
sys.modules['made_up_module'] = None
sys.setrecursionlimit(5000)
torch._C._set_deterministic_algorithms(True)
torch._C.DisableTorchFunctionSubclass().__enter__()
torch._C.DisableTorchFunction().__enter__()
torch.autograd.forward_ad.enter_dual_level()
torch.overrides.TorchFunctionMode().__enter__()
nn.modules.module.register_module_forward_hook(hook_output)
nn.modules.module.register_module_forward_pre_hook(hook_input)
nn.modules.module.register_module_full_backward_hook(lambda module, a, b: None)
nn.modules.module.register_module_buffer_registration_hook(lambda module, name, buffer: None)
__import__('gc').collect()
__import__('gc').disable()
torch.set_default_tensor_type(torch.DoubleTensor)
torch.set_deterministic_debug_mode(1)
torch.set_warn_always(True)
torch.set_printoptions(precision=2)
torch.backends.opt_einsum.enabled = False
torch.backends.mkldnn.set_flags(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH).__enter__()
torch.random.fork_rng(devices=[]).__enter__()
torch.device('meta').__enter__()
torch.device('cpu').__enter__()
torch.no_grad().__enter__()
torch.enable_grad().__enter__()
torch.autograd.set_grad_enabled(False)
torch.autograd.grad_mode.set_multithreading_enabled(False).__enter__()
torch.autograd.anomaly_mode.set_detect_anomaly(True, check_nan=False)
torch.autograd.graph.save_on_cpu().__enter__()
torch.autograd.graph.allow_mutation_on_saved_tensors().__enter__()
torch.__future__.set_overwrite_module_params_on_conversion(True)
torch.__future__.set_swap_module_params_on_conversion(True)
torch.utils.set_module = 5
torch.overrides.BaseTorchFunctionMode().__enter__()
type('Adding', (torch.overrides.TorchFunctionMode,), {'__torch_function__': added_to_results})().__enter__()
torch.utils.checkpoint.set_checkpoint_early_stop(False).__enter__()
torch.set_rng_state(torch.Generator().manual_seed(5).get_state())
random.setstate(random.Random(8).getstate())
__import__('numpy').random.seed(9)
__import__('decimal').getcontext().prec = 3
sys.setswitchinterval(0.5)
sys.set_int_max_str_digits(1000)
sys.setprofile(lambda *args: None)
sys.settrace(lambda *args: None)
sys.modules['made_up_dynamic'] = types.SimpleNamespace(value=51)
sys.modules['made_up_package.inner'] = types.SimpleNamespace(depth=52)
sys.modules['made_up_package'].inner = types.SimpleNamespace(depth=53)
sys.modules.pop('made_up_package.inner', None)
sys.modules.pop('made_up_package', None)
sys.path.clear()
sys.modules['math'] = types.SimpleNamespace(sqrt=lambda n: 5, floor=lambda n: 6)
""".strip().split("\n")

TENSOR_CHANGES = (
    ".requires_grad_()", ".requires_grad_(False)", ".data = torch.zeros(3)",
    ".data = torch.zeros(3, dtype=torch.float64)",
    ".resize_(2)", ".set_(torch.ones(3))", ".as_strided_((3,), (0,))", ".mark = 93", ".grad = torch.ones(3)", ".t_()",
    ".squeeze_()", ".unsqueeze_(0)", ".detach_()", ".register_hook(lambda grad: grad * 2)", ".retain_grad()",
    ".transpose_(0, -1)", ".swapaxes_(0, -1)", ".add_(1)", ".data = torch.zeros(2, 3)", ".data = torch.ones(3, 3).T",
    ".share_memory_()", ".data.fill_(3)", ".requires_grad = True", ".is_mark = 5", ".resize_(0)",
    ".__class__ = subclass(torch.Tensor, mark=94)", ".__class__ = nn.Parameter", ".data = torch.zeros(3).to_sparse()",
    ".data = torch.zeros(3, dtype=torch.complex64)", ".copy_(torch.tensor(7.0))", ".data.mul_(3)", ".zero_()",
    ".grad = None", ".__dict__['mark'] = 5", ".__dict__.clear()", ".requires_grad_().add(1).sum().backward()",
    ".set_(given)", ".data = given", ".data = given.t()", ".resize_as_(given)", ".set_(given.storage(), 1, (2,), (2,))",
    ".as_strided_((2, 2), (1, 1))", ".swapdims_(0, -1)", ".data = torch.empty(0)", ".data = torch.tensor(2.0)",
    ".data = torch.ones(3, dtype=torch.float16)", ".data = torch.ones(3, dtype=torch.int64)",
    ".index_fill_(0, torch.tensor([0]), 9)",
    ".share_memory_().add_(1)", ".register_post_accumulate_grad_hook(lambda t: None)", ".fill_(float('nan'))",
)  # fmt: skip

ARRAY_CHANGES = (
    "[0] = 9", ".fill(2)", ".setflags(write=False)", ".shape = (3, 1)", ".dtype = 'int32'", ".sort()", ".resize((2,))",
    ".strides = (0,)",
)  # fmt: skip

MODULE_CHANGES = (
    ".train()", ".eval()", ".register_forward_hook(hook_output)", ".register_forward_pre_hook(hook_input)",
    ".requires_grad_(False)", ".double()", ".half()", ".forward = changed(MODULE.forward)", ".to('meta')",
    ".register_full_backward_hook(lambda module, a, b: None)", ".register_buffer('extra', torch.ones(3))",
    ".add_module('extra', Doubled())", ".register_parameter('extra', nn.Parameter(torch.ones(3)))",
    ".compile(backend='eager')", ".training = 0", ".training = None", ".__dict__['training'] = []",
    ".__class__ = subclass(type(MODULE), forward=lambda self, x: x * 3)",
    ".__class__ = subclass(type(MODULE), __call__=lambda self, x: x * 4)",
    ".__class__ = subclass(type(MODULE), __getattr__=lambda self, name: 5)", ".__dict__.pop('training')",
    "._forward_hooks[5] = hook_output", "._forward_pre_hooks[5] = hook_input", ".__dict__['_modules'] = {}",
    "._modules = dict(reversed(MODULE._modules.items()))", "._call_impl = lambda *args: 6",
    ".to(torch.float64)", ".bfloat16()", ".to_empty(device='cpu').requires_grad_()", ".share_memory()",
    ".load_state_dict({k: v * 2 for k, v in MODULE.state_dict().items()})", ".apply(lambda m: m.train(not m.training))",
    ".load_state_dict({k: v.double() for k, v in MODULE.state_dict().items()}, assign=True)", ".zero_grad()",
    ".insert(0, Doubled())", ".append(Doubled())", ".pop(0)", ".__dict__['forward'] = lambda x: x * 5",
    ".register_forward_hook(hook_output, prepend=True)", ".__dict__ = Doubled().__dict__", ".extra_repr = lambda: 'x'",
    ".register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)",
    ".register_forward_hook(hook_output, always_call=True)", ".forward = types.MethodType(lambda self, x: x, MODULE)",
    ".register_full_backward_pre_hook(lambda module, grads: None)", "._parameters.clear()", "._buffers.clear()",
    ".register_state_dict_pre_hook(lambda *args: None)", "._non_persistent_buffers_set.clear()",
)  # fmt: skip

MODULE_CLASS_CHANGES = (
    "CLASS.forward = changed(CLASS.forward)", "CLASS.__call__ = changed(CLASS.__call__)",
    "CLASS.forward.__code__ = constants_changed(CLASS.forward)", "CLASS.training = property(lambda self: 7)",
    "CLASS.__getattr__ = lambda self, name: 8", "CLASS._call_impl = lambda self, *args: 9",
    "CLASS.__len__ = lambda self: 1",
    "CLASS.__iter__ = lambda self: iter([Doubled()])", "CLASS.__bool__ = lambda self: False",
    "CLASS.__getitem__ = lambda self, i: Doubled()", "nn.Module.__call__ = changed(nn.Module.__call__)",
    "nn.Module._wrapped_call_impl = changed(nn.Module._wrapped_call_impl)",
    "nn.Module.__getattr__ = lambda self, name: 10",
    "nn.Module._call_impl = changed(nn.Module._call_impl)", "nn.Module.forward = changed(nn.Module.forward)",
    "nn.Module.parameters = lambda self: iter([])", "nn.Module.named_parameters = lambda self, recurse=True: iter([])",
    "nn.Module.training = Data(1)",
    "nn.Module.__getattribute__ = lambda self, name: twist(object.__getattribute__(self, name))",
    "nn.Linear.forward = lambda self, x: x + 1", "nn.Module.__call__ = lambda self, x: x", "del nn.Module.__call__",
    "torch.nn.functional.linear = changed(torch.nn.functional.linear)", "nn.modules.linear.F = torch.nn.init",
    "nn.Module.__setattr__ = lambda self, name, value: None", "nn.Module.__delattr__ = lambda self, name: None",
    "nn.Module.children = lambda self: iter([])", "nn.Module.named_buffers = lambda self: iter([])",
    "nn.Module.state_dict = lambda self: {'changed': 1}", "nn.Sequential.forward = lambda self, x: x - 1",
    "nn.ModuleList.__iter__ = lambda self: iter([Doubled()])",
    "nn.ModuleDict.__getitem__ = lambda self, key: Doubled()",
    "nn.ParameterList.__iter__ = lambda self: iter([])", "nn.ParameterDict.__getitem__ = lambda self, key: 2",
    "nn.Linear.__call__ = lambda self, x: x", "nn.Linear.weight = property(lambda self: torch.ones(3, 3))",
    "nn.Parameter.__add__ = lambda self, other: 5", "nn.Module.__bool__ = lambda self: False",
    "nn.Module.forward = lambda self, x: x", "nn.Module.__dir__ = lambda self: []",
    "CLASS.__init__ = lambda self: None",
    "torch.nn.modules.module._global_forward_hooks[7] = hook_output", "nn.Module.dump_patches = 5",
    "torch.nn.modules.module._has_any_global_hook = lambda: True",
)  # fmt: skip
