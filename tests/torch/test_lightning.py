"""The callback for Lightning, in real fits of the real trainer."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

import anyinit
from anyinit.errors import ConfigError
from anyinit.lightning import Initialize

X = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
DATA = torch.utils.data.TensorDataset(X, X.sum(1, keepdim=True))


class Net(pl.LightningModule):
    def __init__(self, rate: float = 0.0):
        super().__init__()
        self.rate = rate
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
        self.seen: list[torch.Tensor] = []

    def forward(self, x):
        return self.body(x)

    def training_step(self, batch, _):
        x, y = batch
        self.seen.append(x[:, 0].clone())
        return ((self(x) - y) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.rate)


def trainer(tmp_path, *callbacks, **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    kept = {"enable_checkpointing": False, "max_epochs": 1, "default_root_dir": tmp_path}
    return pl.Trainer(callbacks=list(callbacks), **{**quiet, **kept, **options})


def loader(batch_size=8, **options):
    return torch.utils.data.DataLoader(DATA, batch_size, **options)


def weights(net):
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def assert_same(one, two):
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.fixture
def expected():
    net = Net()
    anyinit.initialize(net, X, seed=3)
    return weights(net)


def test_a_fit_starts_from_the_weights_of_a_plain_call(tmp_path, expected):
    net, callback = Net(), Initialize(X, seed=3)
    trainer(tmp_path, callback).fit(net, loader())
    assert_same(weights(net), expected)
    assert callback.report.model is net
    assert callback.report.healthy


def test_the_input_is_the_modules_own_example_or_what_a_function_returns(tmp_path, expected):
    own, called = Net(), Net()
    own.example_input_array = X
    trainer(tmp_path, Initialize(seed=3)).fit(own, loader())
    trainer(tmp_path, Initialize(lambda: next(iter(loader(batch_size=32)))[0], seed=3)).fit(called, loader())
    assert_same(weights(own), expected)
    assert_same(weights(called), expected)


def test_a_second_fit_goes_on_and_another_module_starts(tmp_path, expected):
    net, callback = Net(rate=0.01), Initialize(X, seed=3)
    trainer(tmp_path, callback).fit(net, loader())
    trained, net.rate = weights(net), 0.0
    assert not torch.equal(trained["body.0.weight"], expected["body.0.weight"])
    trainer(tmp_path, callback).fit(net, loader())
    assert_same(weights(net), trained)
    other = Net()
    trainer(tmp_path, callback).fit(other, loader())
    assert_same(weights(other), expected)


def test_a_fit_from_a_checkpoint_keeps_its_weights(tmp_path):
    net = Net(rate=0.01)
    first = trainer(tmp_path, Initialize(X, seed=3))
    first.fit(net, loader())
    first.save_checkpoint(tmp_path / "net.ckpt")
    again, callback = Net(), Initialize(X, seed=4)
    trainer(tmp_path, callback, max_epochs=1).fit(again, loader(), ckpt_path=tmp_path / "net.ckpt")
    assert_same(weights(again), weights(net))
    assert callback.report is None


def test_batches_come_in_the_order_they_have_without_it(tmp_path):
    orders = []
    for callbacks in ((), (Initialize(lambda: next(iter(loader(shuffle=True)))[0]),)):
        pl.seed_everything(5, verbose=False)
        net = Net()
        trainer(tmp_path, *callbacks).fit(net, loader(shuffle=True))
        orders.append(torch.cat(net.seen))
    assert torch.equal(*orders)


def test_the_seed_of_seed_everything_is_the_seed(tmp_path, expected, monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "3")
    net = Net()
    trainer(tmp_path, Initialize(X)).fit(net, loader())
    assert_same(weights(net), expected)


def test_evaluating_draws_nothing(tmp_path):
    net, callback = Net(), Initialize(X, seed=3)
    net.test_step = lambda batch: None
    before = weights(net)
    trainer(tmp_path, callback).test(net, loader(), verbose=False)
    assert_same(weights(net), before)
    assert callback.report is None


def test_all_processes_draw_the_same_weights(tmp_path, expected):
    class Checked(Net):
        def on_train_start(self):
            own = torch.cat([p.detach().flatten() for p in self.parameters()])
            both = self.all_gather(own)
            assert both.shape[0] == 2
            assert torch.equal(both[0], both[1])
            assert torch.equal(own, torch.cat([p.flatten() for p in expected.values()]))

    rows = lambda: X if torch.distributed.get_rank() == 0 else 9 * X  # what another process would plan differs  # noqa: E731
    trainer(tmp_path, Initialize(rows, seed=3), strategy="ddp_fork", devices=2).fit(Checked(), loader())


def test_a_model_that_cannot_run_is_left_as_it_was(tmp_path):
    net = Net()
    before = weights(net)
    with pytest.raises(anyinit.TraceError):
        trainer(tmp_path, Initialize(torch.randn(4, 5))).fit(net, loader())
    assert_same(weights(net), before)


def test_weights_split_among_devices_are_refused(tmp_path):
    class FSDPStrategy:
        pass

    stand_in = type("Trainer", (), {"ckpt_path": None, "strategy": FSDPStrategy()})()
    with pytest.raises(ConfigError, match=r"split among devices.*FSDPStrategy"):
        Initialize().on_fit_start(stand_in, Net())
