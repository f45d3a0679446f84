"""The page that `explain(...).html(path)` writes, parsed as HTML and looked at in a browser."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import torch
from bs4 import BeautifulSoup
from torch import nn

import pyframe
from pyframe.__main__ import main


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act, self.norm = nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)

    def forward(self, x):
        return self.act(self.linear(self.norm(x))) + x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(64, 8)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        print("a < b & c")
        return self.head(torch.softmax(x, -1))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with torch.no_grad():
        explained = pyframe.explain(Model())(torch.randn(32, 64))
    return explained.html(tmp_path_factory.mktemp("page") / "page.html")


def test_the_page_has_all_parts(page):
    soup = BeautifulSoup(page.read_text(), "html.parser")
    sections = {section["id"]: section for section in soup.find_all("section")}
    assert list(sections) == ["time", "breaks", "graphs", "kernels", "fusion", "memory", "guards"]
    assert all(section.find("h2").text and section.text.strip() != section.find("h2").text for section in sections.values())
    assert "build" in sections["time"].text and sections["time"].find_all("rect")
    assert 'print("a < b & c")' in sections["breaks"].text and "ms to capture" in sections["breaks"].text
    assert len(sections["graphs"].find_all("svg")) == 2 and "layers.1.act" in sections["graphs"].text
    pairs = [pair.find_all("pre") for pair in sections["kernels"].select(".pair")]
    assert any("self.act(self.linear(self.norm(x))) + x" in lines.text and "void k0" in code.text for lines, code in pairs)
    assert "gelu" in sections["fusion"].text and "Left apart" in sections["fusion"].text
    assert "bytes of scratch memory" in sections["memory"].text and sections["memory"].find_all("rect")
    assert "CLASS_FINDS" in sections["guards"].text


def test_the_page_needs_no_network_and_runs_no_script(page):
    soup = BeautifulSoup(page.read_text(), "html.parser")
    assert not soup.find_all(["script", "link", "img", "iframe"])
    assert all(a["href"].startswith("#") for a in soup.find_all("a"))
    assert all(soup.find(id=a["href"][1:]) for a in soup.find_all("a"))


def test_a_page_about_nothing_compiled(tmp_path):
    page = pyframe.explain(lambda x: x + 1, backend="eager")(torch.ones(2)).html(tmp_path / "page.html")
    assert "Nothing was compiled to kernels" in page.read_text()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser Chromium")
def test_a_browser_shows_the_page(page, tmp_path):
    shot = tmp_path / "shot.png"
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         f"--screenshot={shot}", "--window-size=1280,2400", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    data = shot.read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 20_000  # an empty page takes less


def test_the_command_writes_a_page(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import pyframe, torch\npyframe.compile(lambda x: x.sin() + 1)(torch.ones(8))\n")
    assert main(["explain", "--html", str(tmp_path / "page.html"), str(script)]) == 0
    assert "void k0" in (tmp_path / "page.html").read_text() and "page: " in capsys.readouterr().out
