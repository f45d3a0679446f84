"""Programs in the style of PyTorch's tutorials and recipes."""

import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from programs_support import program


def grads(m):
    return {k: p.grad for k, p in m.named_parameters()}


@program
def nn_tutorial_logistic(C):
    weights = torch.randn(20, 10) / math.sqrt(20)
    weights.requires_grad_()
    bias = torch.zeros(10, requires_grad=True)

    def log_softmax(x):
        return x - x.exp().sum(-1).log().unsqueeze(-1)

    @C
    def model(xb):
        return log_softmax(xb @ weights + bias)

    def nll(input, target):
        return -input[range(target.shape[0]), target].mean()

    x = torch.randn(64, 20)
    y = torch.randint(0, 10, (64,))
    losses = []
    nll = C(nll)
    for i in range(3):
        pred = model(x)
        loss = nll(pred, y)
        loss.backward()
        with torch.no_grad():
            weights -= weights.grad * 0.5
            bias -= bias.grad * 0.5
            weights.grad.zero_()
            bias.grad.zero_()
        losses.append(loss)
    return losses, weights, bias


@program
def nn_tutorial_whole_step(C):
    weights = (torch.randn(20, 10) / math.sqrt(20)).requires_grad_()
    bias = torch.zeros(10, requires_grad=True)

    def log_softmax(x):
        return x - x.exp().sum(-1).log().unsqueeze(-1)

    @C
    def step(xb, yb, lr=0.5):
        out = log_softmax(xb @ weights + bias)
        loss = -out[range(yb.shape[0]), yb].mean()
        loss.backward()
        with torch.no_grad():
            weights.sub_(weights.grad * lr)
            bias.sub_(bias.grad * lr)
            weights.grad.zero_()
            bias.grad.zero_()
        return loss

    x = torch.randn(64, 20)
    y = torch.randint(0, 10, (64,))
    return [step(x, y), step(x, y, 0.1), step(x[:10], y[:10])], weights, bias


@program
def cnn_classifier(C):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 6, 5)
            self.pool = nn.MaxPool2d(2, 2)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.fc1 = nn.Linear(16 * 5 * 5, 120)
            self.fc2 = nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, 10)

        def forward(self, x):
            x = self.pool(F.relu(self.conv1(x)))
            x = self.pool(F.relu(self.conv2(x)))
            x = torch.flatten(x, 1)
            x = F.relu(self.fc1(x))
            x = F.relu(self.fc2(x))
            return self.fc3(x)

    net = Net()
    cnet = C(net)
    crit = nn.CrossEntropyLoss()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    ls = []
    for i, b in enumerate((4, 4, 2)):
        x = torch.randn(b, 3, 32, 32)
        y = torch.randint(0, 10, (b,))
        opt.zero_grad()
        loss = crit(cnet(x), y)
        loss.backward()
        opt.step()
        ls.append(loss.item())
    return ls, grads(net), dict(net.state_dict())


@program
def seq2seq_attention(C):
    class Enc(nn.Module):
        def __init__(self, v, h):
            super().__init__()
            self.embedding = nn.Embedding(v, h)
            self.gru = nn.GRU(h, h, batch_first=True)
            self.dropout = nn.Dropout(0.1)

        def forward(self, x):
            return self.gru(self.dropout(self.embedding(x)))

    class Bahdanau(nn.Module):
        def __init__(self, h):
            super().__init__()
            self.Wa = nn.Linear(h, h)
            self.Ua = nn.Linear(h, h)
            self.Va = nn.Linear(h, 1)

        def forward(self, q, k):
            scores = self.Va(torch.tanh(self.Wa(q) + self.Ua(k))).squeeze(2).unsqueeze(1)
            w = F.softmax(scores, dim=-1)
            return torch.bmm(w, k), w

    class Dec(nn.Module):
        def __init__(self, h, v):
            super().__init__()
            self.embedding = nn.Embedding(v, h)
            self.attention = Bahdanau(h)
            self.gru = nn.GRU(2 * h, h, batch_first=True)
            self.out = nn.Linear(h, v)
            self.dropout = nn.Dropout(0.1)

        def forward(self, eo, eh, target=None):
            b = eo.size(0)
            inp = torch.empty(b, 1, dtype=torch.long).fill_(0)
            h = eh
            outs = []
            atts = []
            for i in range(5):
                o, h, a = self.step(inp, h, eo)
                outs.append(o)
                atts.append(a)
                if target is not None:
                    inp = target[:, i].unsqueeze(1)
                else:
                    _, topi = o.topk(1)
                    inp = topi.squeeze(-1).detach()
            outs = F.log_softmax(torch.cat(outs, 1), dim=-1)
            return outs, h, torch.cat(atts, 1)

        def step(self, inp, hidden, eo):
            e = self.dropout(self.embedding(inp))
            q = hidden.permute(1, 0, 2)
            ctx, w = self.attention(q, eo)
            o, h = self.gru(torch.cat((e, ctx), 2), hidden)
            return self.out(o), h, w

    enc, dec = Enc(11, 8), Dec(8, 13)
    ce, cd = C(enc), C(dec)
    x = torch.randint(0, 11, (3, 6))
    t = torch.randint(0, 13, (3, 5))
    res = []
    for tgt in (t, None, t):
        eo, eh = ce(x)
        o, h, a = cd(eo, eh, tgt)
        loss = F.nll_loss(o.view(-1, o.size(-1)), t.view(-1))
        loss.backward()
        res.append((loss, o, a))
    enc.eval()
    dec.eval()
    with torch.no_grad():
        res.append(cd(*ce(x)))
    return res, grads(enc), grads(dec)


@program(tol=1e-3)
def dcgan(C):
    def weights_init(m):
        n = m.__class__.__name__
        if n.find("Conv") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)
        elif n.find("BatchNorm") != -1:
            nn.init.normal_(m.weight.data, 1.0, 0.02)
            nn.init.constant_(m.bias.data, 0)

    G = nn.Sequential(
        nn.ConvTranspose2d(10, 16, 4, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    D = nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )
    G.apply(weights_init)
    D.apply(weights_init)
    cG, cD = C(G), C(D)
    crit = nn.BCELoss()
    oD = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
    oG = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
    log = []
    for i in range(2):
        D.zero_grad()
        real = torch.randn(4, 3, 16, 16)
        label = torch.full((4,), 1.0, dtype=torch.float)
        out = cD(real).view(-1)
        e1 = crit(out, label)
        e1.backward()
        noise = torch.randn(4, 10, 1, 1)
        fake = cG(noise)
        label.fill_(0.0)
        e2 = crit(cD(fake.detach()).view(-1), label)
        e2.backward()
        oD.step()
        G.zero_grad()
        label.fill_(1.0)
        e3 = crit(cD(fake).view(-1), label)
        e3.backward()
        log.append((e1.item(), e2.item(), e3.item()))
        log.append(grads(G))
        oG.step()
    return log, dict(G.state_dict()), dict(D.state_dict())


@program
def vae(C):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(20, 16)
            self.fc21 = nn.Linear(16, 4)
            self.fc22 = nn.Linear(16, 4)
            self.fc3 = nn.Linear(4, 16)
            self.fc4 = nn.Linear(16, 20)

        def encode(self, x):
            h1 = F.relu(self.fc1(x))
            return self.fc21(h1), self.fc22(h1)

        def reparameterize(self, mu, logvar):
            std = torch.exp(0.5 * logvar)
            eps = torch.randn_like(std)
            return mu + eps * std

        def decode(self, z):
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

        def forward(self, x):
            mu, logvar = self.encode(x.view(-1, 20))
            z = self.reparameterize(mu, logvar)
            return self.decode(z), mu, logvar

    def loss_function(recon_x, x, mu, logvar):
        BCE = F.binary_cross_entropy(recon_x, x.view(-1, 20), reduction="sum")
        KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return BCE + KLD

    m = VAE()
    cm = C(m)
    lf = C(loss_function)
    out = []
    for b in (6, 3, 4):
        x = torch.rand(b, 4, 5)
        r, mu, lv = cm(x)
        loss = lf(r, x, mu, lv)
        loss.backward()
        out.append((loss, r))
    with torch.no_grad():
        out.append(C(m.decode)(torch.randn(2, 4)))
    return out, grads(m)


@program
def char_rnn(C):
    class RNN(nn.Module):
        def __init__(self, i, h, o):
            super().__init__()
            self.hidden_size = h
            self.i2h = nn.Linear(i, h)
            self.h2h = nn.Linear(h, h)
            self.h2o = nn.Linear(h, o)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, input, hidden):
            hidden = F.tanh(self.i2h(input) + self.h2h(hidden))
            return self.softmax(self.h2o(hidden)), hidden

        def initHidden(self):
            return torch.zeros(1, self.hidden_size)

    rnn = RNN(5, 7, 3)

    @C
    def train(cat, line):
        hidden = rnn.initHidden()
        rnn.zero_grad()
        for i in range(line.size()[0]):
            output, hidden = rnn(line[i], hidden)
        loss = F.nll_loss(output, cat)
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-0.005)
        return output, loss.item()

    res = []
    for n in (4, 6, 3, 4):
        res.append(train(torch.tensor([1]), torch.randn(n, 1, 5)))
    return res, dict(rnn.state_dict()), grads(rnn)


@program
def transformer_lm(C):
    class PE(nn.Module):
        def __init__(self, d, dropout=0.1, max_len=50):
            super().__init__()
            self.dropout = nn.Dropout(p=dropout)
            position = torch.arange(max_len).unsqueeze(1)
            div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
            pe = torch.zeros(max_len, 1, d)
            pe[:, 0, 0::2] = torch.sin(position * div)
            pe[:, 0, 1::2] = torch.cos(position * div)
            self.register_buffer("pe", pe)

        def forward(self, x):
            x = x + self.pe[: x.size(0)]
            return self.dropout(x)

    class TM(nn.Module):
        def __init__(self, ntoken, d, nhead, dh, nl, dropout=0.5):
            super().__init__()
            self.pos_encoder = PE(d, dropout)
            self.transformer_encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, nhead, dh, dropout), nl)
            self.embedding = nn.Embedding(ntoken, d)
            self.d_model = d
            self.linear = nn.Linear(d, ntoken)
            self.init_weights()

        def init_weights(self):
            self.embedding.weight.data.uniform_(-0.1, 0.1)
            self.linear.bias.data.zero_()
            self.linear.weight.data.uniform_(-0.1, 0.1)

        def forward(self, src, src_mask=None):
            src = self.embedding(src) * math.sqrt(self.d_model)
            src = self.pos_encoder(src)
            if src_mask is None:
                src_mask = nn.Transformer.generate_square_subsequent_mask(len(src))
            return self.linear(self.transformer_encoder(src, src_mask))

    m = TM(19, 16, 2, 32, 2)
    cm = C(m)
    opt = torch.optim.SGD(m.parameters(), lr=5.0)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1.0, gamma=0.95)
    res = []
    for n in (7, 7, 5):
        x = torch.randint(0, 19, (n, 3))
        t = torch.randint(0, 19, (n * 3,))
        out = cm(x)
        loss = F.cross_entropy(out.view(-1, 19), t)
        opt.zero_grad()
        loss.backward()
        gn = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        opt.step()
        sched.step()
        res.append((loss, gn))
    m.eval()
    with torch.no_grad():
        res.append(cm(torch.randint(0, 19, (4, 2))))
    return res, grads(m)


@program
def dqn(C):
    from collections import deque, namedtuple

    Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))

    class DQN(nn.Module):
        def __init__(self, n, a):
            super().__init__()
            self.layer1 = nn.Linear(n, 16)
            self.layer2 = nn.Linear(16, 16)
            self.layer3 = nn.Linear(16, a)

        def forward(self, x):
            return self.layer3(F.relu(self.layer2(F.relu(self.layer1(x)))))

    policy, target = DQN(4, 2), DQN(4, 2)
    target.load_state_dict(policy.state_dict())
    memory = deque([], maxlen=100)
    steps = 0

    def select_action(state):
        nonlocal steps
        sample = random.random()
        eps = 0.05 + (0.9 - 0.05) * math.exp(-1.0 * steps / 100)
        steps += 1
        if sample > eps:
            with torch.no_grad():
                return policy(state).max(1).indices.view(1, 1)
        return torch.tensor([[random.randrange(2)]], dtype=torch.long)

    opt = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)

    def optimize():
        trans = random.sample(memory, 8)
        batch = Transition(*zip(*trans))
        mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), dtype=torch.bool)
        nfs = torch.cat([s for s in batch.next_state if s is not None])
        sb, ab, rb = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
        q = policy(sb).gather(1, ab)
        nv = torch.zeros(8)
        with torch.no_grad():
            nv[mask] = target(nfs).max(1).values
        exp = (nv * 0.99) + rb
        loss = nn.SmoothL1Loss()(q, exp.unsqueeze(1))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
        opt.step()
        return loss

    sel, opti = C(select_action), C(optimize)
    acts = []
    s = torch.randn(1, 4)
    for i in range(20):
        a = sel(s)
        acts.append(a.item())
        ns = torch.randn(1, 4) if i % 5 else None
        memory.append((s, a, ns, torch.tensor([float(i)])))
        s = ns if ns is not None else torch.randn(1, 4)
    ls = [opti() for _ in range(3)]
    tsd, psd = target.state_dict(), policy.state_dict()
    for key in psd:
        tsd[key] = psd[key] * 0.005 + tsd[key] * (1 - 0.005)
    target.load_state_dict(tsd)
    return acts, steps, ls, dict(policy.state_dict()), dict(target.state_dict())


@program
def spatial_transformer(C):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 10, 5)
            self.conv2 = nn.Conv2d(10, 20, 5)
            self.conv2_drop = nn.Dropout2d()
            self.fc1 = nn.Linear(320, 50)
            self.fc2 = nn.Linear(50, 10)
            self.localization = nn.Sequential(
                nn.Conv2d(1, 8, 7),
                nn.MaxPool2d(2, stride=2),
                nn.ReLU(True),
                nn.Conv2d(8, 10, 5),
                nn.MaxPool2d(2, stride=2),
                nn.ReLU(True),
            )
            self.fc_loc = nn.Sequential(nn.Linear(10 * 3 * 3, 32), nn.ReLU(True), nn.Linear(32, 6))
            self.fc_loc[2].weight.data.normal_(0, 0.01)
            self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

        def stn(self, x):
            xs = self.localization(x).view(-1, 10 * 3 * 3)
            theta = self.fc_loc(xs).view(-1, 2, 3)
            grid = F.affine_grid(theta, x.size())
            return F.grid_sample(x, grid)

        def forward(self, x):
            x = self.stn(x)
            x = F.relu(F.max_pool2d(self.conv1(x), 2))
            x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
            x = x.view(-1, 320)
            x = F.relu(self.fc1(x))
            x = F.dropout(x, training=self.training)
            return F.log_softmax(self.fc2(x), dim=1)

    m = Net()
    cm = C(m)
    res = []
    for b in (2, 3, 2):
        o = cm(torch.randn(b, 1, 28, 28))
        l = F.nll_loss(o, torch.arange(b))
        l.backward()
        res.append((o, l))
    return res, grads(m)
