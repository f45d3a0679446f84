"""A denoising loop of diffusers: the U-Net is compiled, the scheduler stays as it is.

    python examples/recipes/diffusers_unet.py    # needs diffusers
"""

import torch
from diffusers import DDIMScheduler, UNet2DConditionModel

import pyframe

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
unet = UNet2DConditionModel(
    sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=32, attention_head_dim=8,
).eval().to(device)  # fmt: skip
text = torch.randn(1, 7, 32, device=device)
noise = torch.randn(1, 4, 16, 16, device=device)


@torch.no_grad()
def denoise(model, steps: int = 5) -> torch.Tensor:
    scheduler = DDIMScheduler()
    scheduler.set_timesteps(steps)
    latents = noise
    for t in scheduler.timesteps:
        latents = scheduler.step(model(latents, t, encoder_hidden_states=text).sample, t, latents).prev_sample
    return latents


expected = denoise(unet)
result = denoise(pyframe.compile(unet, fullgraph=True))
print(f"difference {(result - expected).abs().max():.2e}, graphs {pyframe.counters['graphs']}")
torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
assert pyframe.counters["graphs"] == 1  # one for all time steps
