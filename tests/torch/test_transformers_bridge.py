"""Models built inside ``anyinit.transformers.initializing``: from configurations, and from checkpoints with gaps."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig

import anyinit
from anyinit.errors import BackendUnavailableError, ConfigError, PlanError
from anyinit.transformers import initializing

SMALL = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=61, n_positions=16)
BERT = BertConfig(
    hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, vocab_size=61, num_labels=3
)
IDS = torch.randint(0, 61, (4, 16), generator=torch.Generator().manual_seed(0))


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_same(one, two):
    assert one.keys() == two.keys()
    assert [name for name in one if not torch.equal(one[name], two[name])] == []


def built(make, **options):
    with initializing(**options) as reports:
        model = make()
    return model, reports


def test_a_model_built_from_its_configuration_has_the_weights_of_a_plain_call():
    expected = GPT2LMHeadModel(SMALL)
    anyinit.initialize(expected, seed=3)
    model, reports = built(lambda: GPT2LMHeadModel(SMALL), seed=3)
    assert_same(weights(model), weights(expected))
    assert [report.model for report in reports] == [model]
    assert model.lm_head.weight is model.transformer.wte.weight


def test_an_automatic_class_and_every_model_of_the_block_count():
    llama = LlamaConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48,
        vocab_size=61,
    )  # fmt: skip
    with initializing(seed=1) as reports:
        one = transformers.AutoModelForCausalLM.from_config(llama)
        two = GPT2LMHeadModel(SMALL)
        assert reports == []
    assert [report.model for report in reports] == [one, two]
    assert not any(report.unscaled for report in reports)
    assert torch.isfinite(one(IDS).logits).all()
    assert one.model.rotary_emb.inv_freq[0] == 1.0  # buffers are filled by Transformers


def test_a_plan_is_written_as_it_is():
    plan = anyinit.plan(GPT2LMHeadModel(SMALL), {"input_ids": IDS}, seed=5)
    model, reports = built(lambda: GPT2LMHeadModel(SMALL), plan=plan)
    expected = GPT2LMHeadModel(SMALL)
    plan.apply(expected)
    assert_same(weights(model), weights(expected))
    assert len(reports) == 1


def test_of_a_checkpoint_only_the_missing_head_is_drawn(tmp_path):
    body = BertModel(BERT)
    body.save_pretrained(tmp_path)
    load = lambda: BertForSequenceClassification.from_pretrained(tmp_path, config=BERT)  # noqa: E731
    torch.manual_seed(0)
    stock = weights(load())
    model, reports = built(load, seed=3)
    again, _ = built(load, seed=3)
    assert_same(weights(model.bert), weights(body))
    assert_same(weights(model), weights(again))
    assert {w.name for w in reports[0].plan.weights} - {name for name, _ in reports[0].plan.unscaled} == {
        "classifier.weight",
        "classifier.bias",
    }
    assert not torch.equal(model.classifier.weight, stock["classifier.weight"])
    whole = anyinit.plan(model, {"input_ids": IDS}, seed=4)
    planned, _ = built(load, plan=whole)
    assert_same(weights(planned.bert), weights(body))
    expected = BertForSequenceClassification(BERT)
    whole.apply(expected)
    assert torch.equal(planned.classifier.weight, expected.classifier.weight)


def test_a_whole_checkpoint_is_left_alone(tmp_path):
    model = GPT2LMHeadModel(SMALL)
    model.save_pretrained(tmp_path)
    loaded, reports = built(lambda: GPT2LMHeadModel.from_pretrained(tmp_path), seed=0)
    assert_same(weights(loaded), weights(model))
    assert reports == []


def test_after_the_block_and_after_an_error_models_are_transformers_own_again():
    def own():
        torch.manual_seed(0)
        return weights(GPT2LMHeadModel(SMALL))

    before = own()
    built(lambda: GPT2LMHeadModel(SMALL), seed=3)
    assert_same(own(), before)
    with pytest.raises(KeyError), initializing(seed=3):
        weights(GPT2LMHeadModel(SMALL))["no such weight"]
    assert_same(own(), before)


def test_a_plan_that_does_not_fit_and_a_plan_with_options_are_refused():
    plan = anyinit.plan(GPT2LMHeadModel(SMALL), seed=5)
    other = GPT2Config(**{**SMALL.to_dict(), "n_embd": 64})
    kept = []
    torch.manual_seed(0)
    before = weights(GPT2LMHeadModel(other))
    torch.manual_seed(0)
    with pytest.raises(PlanError, match="does not fit"), initializing(plan):
        kept.append(GPT2LMHeadModel(other))
    assert_same(weights(kept[0]), before)
    with pytest.raises(ConfigError, match="plan decides everything"), initializing(plan, seed=1):
        pass


def test_a_model_on_the_meta_device_is_passed_over():
    def make():
        with torch.device("meta"):
            return GPT2LMHeadModel(SMALL)

    assert built(make, seed=0)[1] == []


def test_a_version_without_the_place_to_enter_is_refused(monkeypatch):
    monkeypatch.delattr(transformers.PreTrainedModel, "initialize_weights")
    with pytest.raises(BackendUnavailableError, match="initialize_weights"), initializing():
        pass


def test_trainers_model_init_works_as_a_block():
    def model_init():
        return built(lambda: GPT2LMHeadModel(SMALL), seed=3)[0]

    assert_same(weights(model_init()), weights(model_init()))
