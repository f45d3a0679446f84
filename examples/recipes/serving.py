"""A model behind HTTP: compile before the first request, serve all batch sizes, and never compile while one waits.

    python examples/recipes/serving.py
"""

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch import nn

import pyframe

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4)).eval()
compiled = pyframe.compile(model)

# Warm up: the first dimension is a symbol, so that one capture serves all batches; a batch of 1 has its own.
with torch.inference_mode():
    for batch in (1, 8):
        x = torch.randn(batch, 16)
        if batch > 1:
            pyframe.mark_dynamic(x, 0)
        compiled(x)
# From here on a call that no capture serves is an error, which a test of the server would show.
pyframe.set_stance("fail_on_recompile")
captured = pyframe.counters["graphs"]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with torch.inference_mode():  # as in the warm-up: the mode is guarded
            answer = compiled(torch.tensor(rows)).tolist()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()


def ask(batch: int) -> bool:
    """Whether the answer to a request is what the model gives in eager."""
    rows = torch.randn(batch, 16)
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}", json.dumps(rows.tolist()).encode())
    with urllib.request.urlopen(request) as response, torch.no_grad():
        return torch.allclose(torch.tensor(json.load(response)), model(rows), atol=1e-5)


with ThreadPoolExecutor(4) as pool:
    answers = list(pool.map(ask, [1, 2, 3, 5, 8, 13, 21, 34] * 4))
server.shutdown()
print(f"{sum(answers)} of {len(answers)} answers are right, graphs {pyframe.counters['graphs']}")
assert all(answers) and pyframe.counters["graphs"] == captured
