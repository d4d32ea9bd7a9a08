"""Kimi Linear: three KDA layers to one NoPE MLA layer, mixture of experts, linear cost in length."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from engine.checkpoint.config import ConfigFields
from engine.checkpoint.weights import Numerics, WeightReader
from engine.errors import CheckpointError
from engine.layers.activations import rms_norm
from engine.layers.kda import KimiDeltaAttention
from engine.layers.kda_core import Cores, KdaParameters, chosen_cores
from engine.layers.linear import ROW_BLOCK, Joined, Linear
from engine.layers.mla import LatentAttention
from engine.layers.mlp import GatedMLP
from engine.layers.moe import MixtureOfExperts, Router
from engine.models.base import STEPWISE_FROM, LanguageModel, Pulse, register, register_known
from engine.models.kimi_linear_layout import canonical_tensors
from engine.state import LatentState, LayerState, RecurrentState, SequenceState

_K3_FIELDS = ("attn_res_block_size", "routed_expert_hidden_size", "mla_use_output_gate")


@dataclass(frozen=True, slots=True)
class KimiLinearConfig:
    """The fields of config.json that the mathematics uses. Layer lists are 0-based here."""

    vocab_size: int
    hidden: int
    layers: int
    kda_layers: frozenset[int]
    kda_heads: int
    kda_width: int
    kernel: int
    heads: int
    nope: int
    shared: int
    value: int
    rank: int
    intermediate: int
    moe_intermediate: int
    experts: int
    top_k: int
    shared_experts: int
    first_dense: int
    moe_every: int
    renormalize: bool
    scaling: float
    groups: int
    top_groups: int
    eps: float
    tied: bool
    window: int

    @staticmethod
    def parse(config: Mapping[str, Any]) -> "KimiLinearConfig":
        """Read config.json; fields in the published or the transformers spelling."""
        fields = ConfigFields(config)
        for name, allowed, default in (
            ("hidden_act", ("silu",), "silu"),
            ("mla_use_nope", (True,), True),
            ("q_lora_rank", (None,), None),
            ("moe_router_activation_func", ("sigmoid",), "sigmoid"),
        ):
            fields.must_be(name, allowed, default)
        linear = fields.table("linear_attn_config")
        for name in ("gate_lower_bound", "use_full_rank_gate"):
            linear.must_be(name, (None, False), None)
        layers = fields.integer("num_hidden_layers")
        heads = fields.integer("num_attention_heads")
        fields.must_be("num_key_value_heads", (None, heads), None)
        kda = [i - 1 for i in linear.integers("kda_layers")]
        full = [i - 1 for i in linear.integers("full_attn_layers")]
        if sorted(kda + full) != list(range(layers)):
            raise CheckpointError(
                "config.json: kda_layers and full_attn_layers do not name each layer from 1 to "
                f"{layers} exactly once. Download config.json again."
            )
        parsed = KimiLinearConfig(
            vocab_size=fields.integer("vocab_size"),
            hidden=fields.integer("hidden_size"),
            layers=layers,
            kda_layers=frozenset(kda),
            kda_heads=linear.integer("num_heads"),
            kda_width=linear.integer("head_dim"),
            kernel=linear.integer("short_conv_kernel_size", low=2),
            heads=heads,
            nope=fields.integer("qk_nope_head_dim"),
            shared=fields.integer("qk_rope_head_dim"),
            value=fields.integer("v_head_dim"),
            rank=fields.integer("kv_lora_rank"),
            intermediate=fields.integer("intermediate_size"),
            moe_intermediate=fields.integer("moe_intermediate_size", default=1),
            experts=fields.integer("num_experts", "n_routed_experts", default=0, low=0),
            top_k=fields.integer("num_experts_per_token", "num_experts_per_tok", default=1),
            shared_experts=fields.integer("num_shared_experts", "n_shared_experts", default=0, low=0),
            first_dense=fields.integer("first_k_dense_replace", default=0, low=0),
            moe_every=fields.integer("moe_layer_freq", default=1),
            renormalize=fields.flag("moe_renormalize", "norm_topk_prob", default=True),
            scaling=fields.number("routed_scaling_factor", default=1.0),
            groups=fields.integer("num_expert_group", "n_group", default=1),
            top_groups=fields.integer("topk_group", default=1),
            eps=fields.number("rms_norm_eps"),
            tied=fields.flag("tie_word_embeddings", default=False),
            window=fields.integer("model_max_length", "max_position_embeddings", default=1 << 20),
        )
        parsed.check_experts()
        return parsed

    def check_experts(self) -> None:
        """Refuse expert counts that cannot be chosen from."""
        if not self.experts:
            return
        if self.top_k > self.experts:
            raise CheckpointError(
                f"config.json asks for {self.top_k} of {self.experts} experts a token. "
                "Download config.json again."
            )
        in_group = self.experts // self.groups
        uneven = self.experts % self.groups or self.top_groups > self.groups
        too_few = self.groups > 1 and (in_group < 2 or self.top_k > self.top_groups * in_group)
        if uneven or too_few:
            raise CheckpointError(
                f"config.json: {self.top_k} of {self.experts} experts cannot be chosen from "
                f"{self.top_groups} of {self.groups} groups. Download config.json again."
            )

    def is_moe(self, layer: int) -> bool:
        """Whether the MLP of a layer (0-based) is a mixture of experts."""
        return self.experts > 0 and layer >= self.first_dense and layer % self.moe_every == 0


@dataclass(frozen=True)
class Block:
    """One layer: attention and MLP, each after its norm, each added to the residual."""

    attention_norm: mx.array
    attention: KimiDeltaAttention | LatentAttention
    mlp_norm: mx.array
    mlp: GatedMLP | MixtureOfExperts
    eps: float

    def __call__(self, x: mx.array, state: LayerState, valid: int) -> mx.array:
        """x [B, T, D] -> [B, T, D], continuing `state` by the first `valid` rows."""
        normed = rms_norm(x, self.attention_norm, self.eps)
        if isinstance(self.attention, KimiDeltaAttention):
            assert isinstance(state, RecurrentState)  # built together in new_state
            x = x + self.attention(normed, state, valid)
        else:
            assert isinstance(state, LatentState)
            x = x + self.attention(normed, state, valid)
        return x + self.mlp(rms_norm(x, self.mlp_norm, self.eps))


class KimiLinear(LanguageModel):
    """See the module. Carries its state across chunks, so a prompt may be read in chunks."""

    family = "kimi_linear"

    def __init__(self, config: KimiLinearConfig, weights: WeightReader) -> None:
        self.config = config
        self.context_window = config.window
        self.vocab_size = config.vocab_size
        self.numerics: Numerics = weights.numerics
        embedding = weights.matrix("model.embed_tokens", config.vocab_size, config.hidden)
        self.embedding = embedding
        self.blocks = tuple(_build_block(config, weights, i) for i in range(config.layers))
        self.norm = weights.take("model.norm.weight", (config.hidden,))
        if config.tied:
            self.head = Linear(embedding)
        else:
            self.head = weights.projection("lm_head", config.vocab_size, config.hidden)

    def new_state(self, batch: int = 1) -> SequenceState:
        """Zeros for KDA, nothing for MLA."""
        c = self.config
        layers: list[LayerState] = []
        for i in range(c.layers):
            if i in c.kda_layers:
                window = mx.zeros((batch, c.kernel - 1, 3 * c.kda_heads * c.kda_width), self.numerics.dtype)
                memory = mx.zeros((batch, c.kda_heads, c.kda_width, c.kda_width), mx.float32)
                layers.append(RecurrentState(window, memory))
            else:
                layers.append(LatentState(batch, c.rank + c.shared, self.numerics.dtype))
        return SequenceState(layers)

    def forward(self, ids: mx.array, state: SequenceState, pulse: Pulse) -> mx.array:
        """ids [B, T] int32 -> last position's logits [B, V] float32."""
        tokens = ids.shape[1]
        if self.numerics.blocked and tokens > 1:
            ids = mx.pad(ids, [(0, 0), (0, -tokens % ROW_BLOCK)])
        x = self.embedding[ids]
        for done, (block, layer) in enumerate(zip(self.blocks, state.layers, strict=True), start=1):
            x = block(x, layer, tokens)
            if tokens >= STEPWISE_FROM:
                mx.eval(x, layer.pending())
                if done < len(self.blocks):
                    pulse(done / len(self.blocks))
        last = rms_norm(x[:, tokens - 1], self.norm, self.config.eps)
        return self.head(last).astype(mx.float32)

    def describe_layers(self) -> tuple[str, ...]:
        """See `LanguageModel`."""
        return tuple("KDA" if i in self.config.kda_layers else "MLA" for i in range(self.config.layers))


def _build_block(c: KimiLinearConfig, weights: WeightReader, i: int) -> Block:
    name = f"model.layers.{i}"
    attention = _build_kda(c, weights, f"{name}.self_attn") if i in c.kda_layers else None
    return Block(
        attention_norm=weights.take(f"{name}.input_layernorm.weight", (c.hidden,)),
        attention=attention or _build_mla(c, weights, f"{name}.self_attn"),
        mlp_norm=weights.take(f"{name}.post_attention_layernorm.weight", (c.hidden,)),
        mlp=_build_moe(c, weights, f"{name}.mlp")
        if c.is_moe(i)
        else _build_mlp(weights, f"{name}.mlp", c.hidden, c.intermediate),
        eps=c.eps,
    )


def _build_kda(c: KimiLinearConfig, w: WeightReader, name: str) -> KimiDeltaAttention:
    total, rank = c.kda_heads * c.kda_width, c.kda_width
    parts = [(f"{p}_proj", total) for p in "qkv"]
    parts += [("f_a_proj", rank), ("g_a_proj", rank), ("b_proj", c.kda_heads)]
    inputs = Joined.of([w.projection(f"{name}.{part}", out, c.hidden) for part, out in parts])
    taps = [w.take(f"{name}.{p}_conv.conv.weight", (total, c.kernel, 1))[..., 0].T for p in "qkv"]
    h = c.kda_heads
    parameters = KdaParameters.of(
        taps=mx.contiguous(mx.concatenate(taps, axis=1)),
        a_log=w.take(f"{name}.A_log", (h, 1), (h,), (1, 1, h, 1), dtype=mx.float32),
        decay_bias=w.take(f"{name}.dt_bias", (h, c.kda_width), (total,), dtype=mx.float32),
        output_norm=w.take(f"{name}.o_norm.weight", (c.kda_width,), dtype=mx.float32),
        eps=c.eps,
    )
    columns = 3 * total + 2 * rank + h
    cores = chosen_cores(h, c.kda_width, c.kernel, columns, w.numerics.dtype) if w.sound else Cores()
    return KimiDeltaAttention(
        rank=rank,
        inputs=inputs,
        forget_up=w.projection(f"{name}.f_b_proj", total, rank),
        gate_up=w.projection(f"{name}.g_b_proj", total, rank),
        parameters=parameters,
        core=cores,
        output=w.projection(f"{name}.o_proj", c.hidden, total),
    )


def _build_mla(c: KimiLinearConfig, w: WeightReader, name: str) -> LatentAttention:
    query = w.projection(f"{name}.q_proj", c.heads * (c.nope + c.shared), c.hidden)
    latent = w.projection(f"{name}.kv_a_proj_with_mqa", c.rank + c.shared, c.hidden)
    key_up = w.matrix(f"{name}.embed_q", c.heads, c.rank, c.nope)
    value_up = w.matrix(f"{name}.unembed_out", c.heads, c.value, c.rank)
    return LatentAttention(
        heads=c.heads,
        nope=c.nope,
        shared=c.shared,
        inputs=Joined.of([query, latent]),
        latent_norm=w.take(f"{name}.kv_a_layernorm.weight", (c.rank,)),
        key_up=key_up,
        value_up=mx.contiguous(value_up.swapaxes(1, 2)),
        output=w.projection(f"{name}.o_proj", c.hidden, c.heads * c.value),
        blocked=w.numerics.blocked,
    )


def _build_mlp(w: WeightReader, name: str, hidden: int, inner: int) -> GatedMLP:
    gate = w.projection(f"{name}.gate_proj", inner, hidden)
    up = w.projection(f"{name}.up_proj", inner, hidden)
    return GatedMLP(Joined.of([gate, up]), w.projection(f"{name}.down_proj", hidden, inner))


def _build_moe(c: KimiLinearConfig, w: WeightReader, name: str) -> MixtureOfExperts:
    shared = None
    if c.shared_experts:
        shared = _build_mlp(w, f"{name}.shared_experts", c.hidden, c.moe_intermediate * c.shared_experts)
    router = Router(
        gate=w.dense_projection(f"{name}.gate", c.experts, c.hidden, mx.float32),
        bias=w.take(f"{name}.e_score_correction_bias", (c.experts,), dtype=mx.float32),
        top_k=c.top_k,
        renormalize=c.renormalize,
        scaling=c.scaling,
        groups=c.groups,
        top_groups=c.top_groups,
    )
    experts = w.experts(f"{name}.switch_mlp", c.experts, c.hidden, c.moe_intermediate)
    return MixtureOfExperts(router, experts, shared)


def _is_kimi_k3(config: Mapping[str, Any]) -> bool:
    """Kimi K3's text part calls itself kimi_linear too; its fields tell it apart."""
    if config.get("model_type") == "kimi_k3":
        return True
    fields = any(config.get(field) for field in _K3_FIELDS) or config.get("hidden_act") == "situ"
    return config.get("model_type") == "kimi_linear" and fields


def _matches(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == "kimi_linear" and not _is_kimi_k3(config)


def build(config: Mapping[str, Any], weights: WeightReader) -> KimiLinear:
    """The model from config.json and a reader over its tensors, in either layout."""
    parsed = KimiLinearConfig.parse(config)
    return KimiLinear(parsed, canonical_tensors(parsed, weights))


register("kimi_linear", _matches, build)
register_known(_is_kimi_k3, "is Kimi K3, or its text part under the name kimi_linear")
