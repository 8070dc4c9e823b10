"""mini-glm-dsa: the model, its training on one GPU, its evaluation and reference outputs.

  python3 train.py train --dir DIR --budget SECONDS      (resumes DIR/ckpt.pt if it is there)
  python3 train.py smoke --dir DIR                       checks against transformers, compiled against plain, speed, save and restore
  python3 train.py eval  --weights W.npz --set S.jsonl --out O.json [--dense] [--bf16] [--q8]
  python3 train.py ref   --weights M.gguf --out R.npz [--split 1]      reference outputs of an exported file (float32)

The layer is GLM-5's: MLA (q and kv low-rank, decoupled RoPE in adjacent pairs), a lightning indexer that picks the
top-k keys of each query, one leading dense FFN, then sigmoid-routed experts beside a shared one, and one MTP layer.
Parameter names are those of the Hugging Face class, so a state dict maps one to one.
"""
import argparse, json, math, multiprocessing as mp, os, queue, random, sys, threading, time
import numpy as np
import torch
import torch.nn.functional as F
import data as D

CFG = dict(vocab=3584, hidden=256, layers=5, dense_layers=1, dense_ffn=768, heads=4, q_rank=256, kv_rank=512, nope=192, rope=64, vdim=256,
           experts=8, topk=4, moe_ffn=256, scale=2.5, index_heads=4, index_dim=128, index_topk=256, eps=1e-5, theta=1e6, ctx=4096)
C = argparse.Namespace(**CFG)
QD = C.nope + C.rope
SM = QD ** -0.5
EPS_INNER = C.eps       # transformers builds the two inner norms with 1e-6; the smoke test switches this
NEG = -1e9
SHARED = ()             # layers that reuse the selection of the layer before (none here; for cross-checks with other engines)


def shapes():
    s = {"model.embed_tokens.weight": (C.vocab, C.hidden), "model.norm.weight": (C.hidden,), "lm_head.weight": (C.vocab, C.hidden)}
    for i in range(C.layers + 1):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        s.update({p + "input_layernorm.weight": (C.hidden,), p + "post_attention_layernorm.weight": (C.hidden,),
                  a + "q_a_proj.weight": (C.q_rank, C.hidden), a + "q_a_layernorm.weight": (C.q_rank,), a + "q_b_proj.weight": (C.heads * QD, C.q_rank),
                  a + "kv_a_proj_with_mqa.weight": (C.kv_rank + C.rope, C.hidden), a + "kv_a_layernorm.weight": (C.kv_rank,),
                  a + "kv_b_proj.weight": (C.heads * (C.nope + C.vdim), C.kv_rank), a + "o_proj.weight": (C.hidden, C.heads * C.vdim),
                  a + "indexer.wq_b.weight": (C.index_heads * C.index_dim, C.q_rank), a + "indexer.wk.weight": (C.index_dim, C.hidden),
                  a + "indexer.k_norm.weight": (C.index_dim,), a + "indexer.k_norm.bias": (C.index_dim,), a + "indexer.weights_proj.weight": (C.index_heads, C.hidden)})
        m = p + "mlp."
        if i < C.dense_layers: s.update({m + "gate_proj.weight": (C.dense_ffn, C.hidden), m + "up_proj.weight": (C.dense_ffn, C.hidden), m + "down_proj.weight": (C.hidden, C.dense_ffn)})
        else:
            s.update({m + "gate.weight": (C.experts, C.hidden), m + "gate.e_score_correction_bias": (C.experts,),
                      m + "experts.gate_proj": (C.experts, C.moe_ffn, C.hidden), m + "experts.up_proj": (C.experts, C.moe_ffn, C.hidden), m + "experts.down_proj": (C.experts, C.hidden, C.moe_ffn),
                      m + "shared_experts.gate_proj.weight": (C.moe_ffn, C.hidden), m + "shared_experts.up_proj.weight": (C.moe_ffn, C.hidden), m + "shared_experts.down_proj.weight": (C.hidden, C.moe_ffn)})
        if i == C.layers: s.update({p + "enorm.weight": (C.hidden,), p + "hnorm.weight": (C.hidden,), p + "eh_proj.weight": (C.hidden, 2 * C.hidden), p + "shared_head.norm.weight": (C.hidden,)})
    return s


def is_bias(n): return n.endswith("e_score_correction_bias")


def init(seed, device):
    g = torch.Generator().manual_seed(seed)
    P = {}
    for n, s in shapes().items():
        if n.endswith("norm.weight"): t = torch.ones(s)
        elif n.endswith("bias"): t = torch.zeros(s)
        elif n == "model.embed_tokens.weight": t = torch.randn(s, generator=g) * 0.2
        elif n == "lm_head.weight": t = torch.randn(s, generator=g) * 0.02
        else:
            t = torch.randn(s, generator=g) * 0.7 * s[-1] ** -0.5
            if n.endswith("o_proj.weight") or "down_proj" in n: t *= (2 * C.layers) ** -0.5
        P[n] = t.to(device).requires_grad_(not is_bias(n))
    return P


# ---------------------------------------------------------------- pieces used by both forms
def rms(x, w, eps):
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def rope(x, cos, sin):
    """Adjacent pairs. x [..., 64]; cos, sin broadcastable to [..., 32]."""
    y = x.float().unflatten(-1, (-1, 2))
    a, b = y[..., 0], y[..., 1]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def rope_table(T, device):
    inv = C.theta ** (-torch.arange(0, C.rope, 2, dtype=torch.float32, device=device) / C.rope)
    f = torch.arange(T, dtype=torch.float32, device=device)[:, None] * inv[None]
    return f.cos(), f.sin()


def gates(y, wg, bias):
    """Router: gate of every expert (0 where not chosen), and which were chosen. Ties: lower index."""
    s = torch.sigmoid(y.float() @ wg.float().t())
    c = s.detach() + bias
    n = c.shape[-1]
    i = torch.arange(n, device=y.device)
    before = (c[:, None, :] > c[:, :, None]) | ((c[:, None, :] == c[:, :, None]) & (i[None, None, :] < i[None, :, None]))
    sel = before.sum(-1) < C.topk
    g = s * sel
    return C.scale * g / (g.sum(-1, keepdim=True) + 1e-20), sel


# ---------------------------------------------------------------- training form: bf16 products, explicit attention, compiled in pieces
bf = torch.bfloat16


def f_pre(x, an, wqa, qan, wqb, wkva, kvan, wkvb, cos, sin):
    xn = rms(x, an, C.eps).to(bf)
    qr = rms(F.linear(xn, wqa.to(bf)), qan, EPS_INNER).to(bf)
    q = F.linear(qr, wqb.to(bf)).view(-1, C.heads, QD)
    kv = F.linear(xn, wkva.to(bf))
    c = rms(kv[:, :C.kv_rank], kvan, EPS_INNER).to(bf)
    kb = F.linear(c, wkvb.to(bf)).view(-1, C.heads, C.nope + C.vdim)
    cs, sn = cos[:, None], sin[:, None]
    q = torch.cat((q[..., :C.nope], rope(q[..., C.nope:], cs, sn)), -1)
    kp = rope(kv[:, None, C.kv_rank:], cs, sn).expand(-1, C.heads, -1)
    return xn, qr, q, torch.cat((kb[..., :C.nope], kp), -1), kb[..., C.nope:].contiguous()


def causal(seg, T):
    i = torch.arange(T, device=seg.device)
    return (i[:, None] >= i[None]) & (seg[:, :, None] == seg[:, None, :])


def split_heads(x, B, T): return x.view(B, T, C.heads, -1).transpose(1, 2)


def f_attn(q, k, v, seg, B: int, T: int):
    q, k, v = (split_heads(t, B, T) for t in (q, k, v))
    s = torch.matmul(q, k.transpose(-1, -2)).float() * SM
    p = torch.softmax(s.masked_fill(~causal(seg, T)[:, None], NEG), -1).to(bf)
    return torch.matmul(p, v).transpose(1, 2).reshape(B * T, C.heads * C.vdim)


def index_scores(xn, qr, wq, wk, kw, kb, wp, cos, sin, B, T):
    """[B, T, T] float32, unmasked."""
    dt = xn.dtype
    q = F.linear(qr, wq.to(dt)).view(B * T, C.index_heads, C.index_dim)
    k = F.layer_norm(F.linear(xn, wk.to(dt)).float(), (C.index_dim,), kw, kb, 1e-6).to(dt)
    r = C.rope
    q = torch.cat((rope(q[..., :r], cos[:, None], sin[:, None]), q[..., r:]), -1)
    k = torch.cat((rope(k[:, :r], cos, sin), k[:, r:]), -1)
    w = (xn.float() @ wp.float().t()) * (C.index_heads * C.index_dim) ** -0.5
    d = torch.matmul(q.view(B, T * C.index_heads, C.index_dim), k.view(B, T, C.index_dim).transpose(1, 2)).view(B, T, C.index_heads, T)
    return (F.relu(d).float() * w.view(B, T, C.index_heads, 1)).sum(2)


def f_attn_index(q, k, v, seg, xn, qr, wq, wk, kw, kb, wp, cos, sin, B: int, T: int, sparse: bool):
    """Attention plus the indexer's loss: KL(head-averaged dense attention || softmax of index scores)."""
    q, k, v = (split_heads(t, B, T) for t in (q, k, v))
    m = causal(seg, T)
    s = torch.matmul(q, k.transpose(-1, -2)).float() * SM
    p = torch.softmax(s.masked_fill(~m[:, None], NEG), -1)
    I = index_scores(xn, qr, wq, wk, kw, kb, wp, cos, sin, B, T).masked_fill(~m, NEG)
    tgt = p.detach().mean(1)
    kl = (torch.xlogy(tgt, tgt) - tgt * torch.log_softmax(I, -1)).sum(-1).mean()
    if sparse:
        thr = torch.topk(I.detach(), C.index_topk, -1, sorted=False).values.amin(-1, keepdim=True)
        p = torch.softmax(s.masked_fill(~(m & (I.detach() >= thr))[:, None], NEG), -1)
    o = torch.matmul(p.to(bf), v).transpose(1, 2).reshape(B * T, C.heads * C.vdim)
    return o, kl


def f_post_dense(x, o, wo, pn, wg, wu, wd):
    x = x + F.linear(o, wo.to(bf)).float()
    y = rms(x, pn, C.eps).to(bf)
    return x + F.linear(F.silu(F.linear(y, wg.to(bf))) * F.linear(y, wu.to(bf)), wd.to(bf)).float()


def f_post_moe(x, o, wo, pn, wr, bias, eg, eu, ed, sg, su, sd):
    """All experts are computed as one wide FFN whose columns are scaled by the gates; the shared expert has gate 1."""
    x = x + F.linear(o, wo.to(bf)).float()
    yf = rms(x, pn, C.eps)
    g, sel = gates(yf, wr, bias)
    y = yf.to(bf)
    wg = torch.cat((eg.reshape(-1, C.hidden), sg)).to(bf)
    wu = torch.cat((eu.reshape(-1, C.hidden), su)).to(bf)
    wd = torch.cat((ed.permute(1, 0, 2).reshape(C.hidden, -1), sd), 1).to(bf)
    h = F.silu(F.linear(y, wg)) * F.linear(y, wu)
    g = torch.cat((g, torch.ones_like(g[:, :1])), 1).to(bf)
    h = (h.view(-1, C.experts + 1, C.moe_ffn) * g[:, :, None]).flatten(1)
    return x + F.linear(h, wd).float(), sel.sum(0).float()


def f_head(x, n, w, tgt, wt):
    lg = F.linear(rms(x, n, C.eps).to(bf), w.to(bf)).float()
    ce = F.cross_entropy(lg, tgt, reduction="none")
    return (ce * wt).sum() / (wt.sum() + 1e-6)


def f_mtp_in(x, fn, e, en, hn, w):
    return F.linear(torch.cat((rms(e, en, C.eps), rms(rms(x, fn, C.eps), hn, C.eps)), -1).to(bf), w.to(bf)).float()


class Trainer:
    def __init__(self, P, device, compile=True):
        self.P, self.dev = P, device
        c = (lambda f: torch.compile(f, dynamic=False, fullgraph=True)) if compile else (lambda f: f)
        if compile:
            import torch._dynamo
            for k in ("recompile_limit", "cache_size_limit"):
                try: setattr(torch._dynamo.config, k, 64)
                except Exception: pass
        self.pre, self.attn, self.attn_index, self.post_dense, self.post_moe, self.head, self.mtp_in = map(c, (f_pre, f_attn, f_attn_index, f_post_dense, f_post_moe, f_head, f_mtp_in))
        self.cos, self.sin = rope_table(C.ctx, device)

    def layer(self, i, x, seg, B, T, cos, sin, mode):
        P, p = self.P, f"model.layers.{i}."
        a = p + "self_attn."
        w = lambda n: P[a + n + ".weight"]
        xn, qr, q, k, v = self.pre(x, P[p + "input_layernorm.weight"], w("q_a_proj"), w("q_a_layernorm"), w("q_b_proj"), w("kv_a_proj_with_mqa"), w("kv_a_layernorm"), w("kv_b_proj"), cos, sin)
        kl = None
        if mode == "plain": o = self.attn(q, k, v, seg, B, T)
        else:
            o, kl = self.attn_index(q, k, v, seg, xn.detach(), qr.detach(), w("indexer.wq_b"), w("indexer.wk"), w("indexer.k_norm"), P[a + "indexer.k_norm.bias"], w("indexer.weights_proj"), cos, sin, B, T, mode == "sparse")
        m = p + "mlp."
        if i < C.dense_layers: return self.post_dense(x, o, w("o_proj"), P[p + "post_attention_layernorm.weight"], P[m + "gate_proj.weight"], P[m + "up_proj.weight"], P[m + "down_proj.weight"]), kl, None
        x, load = self.post_moe(x, o, w("o_proj"), P[p + "post_attention_layernorm.weight"], P[m + "gate.weight"], P[m + "gate.e_score_correction_bias"], P[m + "experts.gate_proj"], P[m + "experts.up_proj"],
                                P[m + "experts.down_proj"], P[m + "shared_experts.gate_proj.weight"], P[m + "shared_experts.up_proj.weight"], P[m + "shared_experts.down_proj.weight"])
        return x, kl, load

    def loss(self, ids, wt, seg, mode):
        """ids, wt, seg [B, T+2]. Returns (total, main, mtp, kl), loads."""
        P = self.P
        B, T = ids.shape[0], ids.shape[1] - 2
        cos, sin = self.cos[:T].repeat(B, 1), self.sin[:T].repeat(B, 1)
        s = seg[:, :T].contiguous()
        x = F.embedding(ids[:, :T].reshape(-1), P["model.embed_tokens.weight"])
        kls, loads = [], []
        for i in range(C.layers):
            x, kl, ld = self.layer(i, x, s, B, T, cos, sin, mode)
            kls.append(kl); loads.append(ld)
        w1 = wt[:, 1:T + 1].reshape(-1)
        main = self.head(x, P["model.norm.weight"], P["lm_head.weight"], ids[:, 1:T + 1].reshape(-1), w1)
        i, p = C.layers, f"model.layers.{C.layers}."
        e = F.embedding(ids[:, 1:T + 1].reshape(-1), P["model.embed_tokens.weight"])
        u = self.mtp_in(x, P["model.norm.weight"], e, P[p + "enorm.weight"], P[p + "hnorm.weight"], P[p + "eh_proj.weight"])
        u, kl, ld = self.layer(i, u, s, B, T, cos, sin, mode)
        kls.append(kl); loads.append(ld)
        w2 = (wt[:, 2:T + 2] * (seg[:, 2:T + 2] == seg[:, :T])).reshape(-1)
        mtp = self.head(u, P[p + "shared_head.norm.weight"], P["lm_head.weight"], ids[:, 2:T + 2].reshape(-1), w2)
        kl = sum(kls) / len(kls) if kls[0] is not None else torch.zeros((), device=self.dev)
        return main + 0.15 * mtp + kl, (main.detach(), mtp.detach(), kl.detach()), loads


# ---------------------------------------------------------------- plain form: any device, any dtype, one definition of everything
def topk_mask(I, k):
    """The k largest of each row; ties: lower position. I [..., T] with NEG where forbidden."""
    T = I.shape[-1]
    if k >= T: return torch.ones_like(I, dtype=torch.bool)
    thr = torch.topk(I, k, -1).values[..., -1:]
    above, tie = I > thr, I == thr
    need = k - above.sum(-1, keepdim=True)
    return above | (tie & (tie.cumsum(-1) <= need))


def plain_layer(P, i, x, seg, B, T, cos, sin, sparse, stat=None, probe=None):
    p = f"model.layers.{i}."; a = p + "self_attn."
    w = lambda n: P[a + n + ".weight"]
    dt = w("q_a_proj").dtype
    xn = rms(x, P[p + "input_layernorm.weight"], C.eps).to(dt)
    qr = rms(F.linear(xn, w("q_a_proj")), w("q_a_layernorm"), EPS_INNER).to(dt)
    q = F.linear(qr, w("q_b_proj")).view(B * T, C.heads, QD)
    kv = F.linear(xn, w("kv_a_proj_with_mqa"))
    c = rms(kv[:, :C.kv_rank], w("kv_a_layernorm"), EPS_INNER).to(dt)
    kb = F.linear(c, w("kv_b_proj")).view(B * T, C.heads, C.nope + C.vdim)
    q = torch.cat((q[..., :C.nope], rope(q[..., C.nope:], cos[:, None], sin[:, None])), -1)
    kp = rope(kv[:, None, C.kv_rank:], cos[:, None], sin[:, None]).expand(-1, C.heads, -1)
    k, v = torch.cat((kb[..., :C.nope], kp), -1), kb[..., C.nope:]
    m = causal(seg, T)
    if sparse and T > C.index_topk:
        I = index_scores(xn, qr, w("indexer.wq_b"), w("indexer.wk"), w("indexer.k_norm"), P[a + "indexer.k_norm.bias"], w("indexer.weights_proj"), cos, sin, B, T).masked_fill(~m, NEG)
        sel = topk_mask(I, C.index_topk)
        if stat is not None:
            thr = torch.topk(I, C.index_topk, -1).values[..., -1:]
            late = torch.arange(T, device=I.device)[None, :] >= C.index_topk
            stat.append([((I == thr).sum(-1) > 1)[late.expand(B, T)].float().mean().item()])
        mm = m & sel
    else: mm = m
    q, k, v = (split_heads(t, B, T) for t in (q, k, v))
    if stat is not None and sparse and T > C.index_topk: stat[-1].append(torch.stack([(torch.softmax((torch.matmul(q[b], k[b].transpose(-1, -2)).float() * SM).masked_fill(~m[b][None], NEG), -1) * sel[b][None]).sum(-1)[:, C.index_topk:].mean() for b in range(B)]).mean().item())
    if probe is not None and sparse and T > C.index_topk: probe.setdefault("selected", []).append(mm[0].clone())
    outs, step = [], max(1, int(6e7 // (C.heads * T * T)))
    for b in range(0, B, step):
        s = torch.matmul(q[b:b + step], k[b:b + step].transpose(-1, -2)).float() * SM
        outs.append(torch.matmul(torch.softmax(s.masked_fill(~mm[b:b + step, None], NEG), -1).to(dt), v[b:b + step]))
    o = torch.cat(outs).transpose(1, 2).reshape(B * T, C.heads * C.vdim)
    x = x + F.linear(o, w("o_proj")).float()
    yf = rms(x, P[p + "post_attention_layernorm.weight"], C.eps)
    y = yf.to(dt)
    mm = p + "mlp."
    ffn = lambda g, u, d: F.linear(F.silu(F.linear(y, g)) * F.linear(y, u), d).float()
    if i < C.dense_layers: return x + ffn(P[mm + "gate_proj.weight"], P[mm + "up_proj.weight"], P[mm + "down_proj.weight"])
    g, _ = gates(yf, P[mm + "gate.weight"], P[mm + "gate.e_score_correction_bias"])
    out = ffn(P[mm + "shared_experts.gate_proj.weight"], P[mm + "shared_experts.up_proj.weight"], P[mm + "shared_experts.down_proj.weight"])
    for e in range(C.experts): out = out + g[:, e:e + 1] * ffn(P[mm + "experts.gate_proj"][e], P[mm + "experts.up_proj"][e], P[mm + "experts.down_proj"][e])
    return x + out


@torch.no_grad()
def plain_forward(P, ids, sparse=True, seg=None, last=None, mtp=False, stat=None, probe=None):
    """Logits [B, T, V] float32, or of the positions `last` [B]. With mtp also the draft logits (positions 0..T-2)."""
    B, T = ids.shape
    dev = ids.device
    cos, sin = rope_table(T, dev)
    cos, sin = cos.repeat(B, 1), sin.repeat(B, 1)
    seg = torch.zeros_like(ids) if seg is None else seg
    x = P["model.embed_tokens.weight"][ids.reshape(-1)].float()
    if probe is not None: probe["hidden"] = [x[-1].clone()]
    for i in range(C.layers):
        x = plain_layer(P, i, x, seg, B, T, cos, sin, sparse, stat, probe)
        if probe is not None: probe["hidden"].append(x[-1].clone())
    h = rms(x, P["model.norm.weight"], C.eps)
    W = P["lm_head.weight"]
    hx = h.view(B, T, -1)
    if last is not None: return F.linear(hx[torch.arange(B, device=dev), last].to(W.dtype), W).float()
    lg = F.linear(hx.to(W.dtype), W).float()
    if not mtp: return lg
    p = f"model.layers.{C.layers}."
    T2 = T - 1
    e = P["model.embed_tokens.weight"][ids[:, 1:].reshape(-1)].float()
    hh = hx[:, :T2].reshape(B * T2, -1)
    u = F.linear(torch.cat((rms(e, P[p + "enorm.weight"], C.eps), rms(hh, P[p + "hnorm.weight"], C.eps)), -1).to(W.dtype), P[p + "eh_proj.weight"]).float()
    c2, s2 = rope_table(T2, dev)
    u = plain_layer(P, C.layers, u, seg[:, :T2].contiguous(), B, T2, c2.repeat(B, 1), s2.repeat(B, 1), sparse)
    return lg, F.linear(rms(u, P[p + "shared_head.norm.weight"], C.eps).to(W.dtype), W).float().view(B, T2, -1)


@torch.no_grad()
def generate(P, prompts, max_new, stop, sparse=True):
    """Greedy continuations of token lists (recomputed each step, no cache)."""
    dev = P["lm_head.weight"].device
    n = len(prompts)
    L = torch.tensor([len(p) for p in prompts], device=dev)
    T = int(L.max()) + max(max_new)
    ids = torch.zeros((n, T), dtype=torch.long, device=dev)
    for i, p in enumerate(prompts): ids[i, :len(p)] = torch.tensor(p, device=dev)
    done = torch.zeros(n, dtype=torch.bool, device=dev)
    lim = torch.tensor(max_new, device=dev)
    out = [[] for _ in range(n)]
    for t in range(max(max_new)):
        act = (~done & (t < lim)).nonzero()[:, 0]
        if len(act) == 0: break
        m = int(L[act].max())
        nx = plain_forward(P, ids[act][:, :m], sparse, last=L[act] - 1).argmax(-1)
        for j, a in enumerate(act.tolist()):
            k = int(nx[j])
            if k in stop: done[a] = True
            else: out[a].append(k); ids[a, int(L[a])] = k; L[a] += 1
    return out


@torch.no_grad()
def cached_step(P, ids, cache, sparse=True):
    """Logits of the last of the new tokens of one sequence; cache holds k, v and index keys of every layer. For CPUs."""
    n0 = cache[0][0].shape[1] if cache else 0
    n = len(ids)
    T = n0 + n
    cos, sin = rope_table(T, ids.device)
    cos, sin = cos[n0:], sin[n0:]
    vis = torch.arange(T)[None] <= torch.arange(n0, T)[:, None]
    x = P["model.embed_tokens.weight"][ids].float()
    new = []
    for i in range(C.layers):
        p = f"model.layers.{i}."; a = p + "self_attn."
        w = lambda m: P[a + m + ".weight"]
        xn = rms(x, P[p + "input_layernorm.weight"], C.eps)
        qr = rms(F.linear(xn, w("q_a_proj")), w("q_a_layernorm"), EPS_INNER)
        q = F.linear(qr, w("q_b_proj")).view(n, C.heads, QD)
        kv = F.linear(xn, w("kv_a_proj_with_mqa"))
        kb = F.linear(rms(kv[:, :C.kv_rank], w("kv_a_layernorm"), EPS_INNER), w("kv_b_proj")).view(n, C.heads, -1)
        q = torch.cat((q[..., :C.nope], rope(q[..., C.nope:], cos[:, None], sin[:, None])), -1).transpose(0, 1)
        kp = rope(kv[:, None, C.kv_rank:], cos[:, None], sin[:, None]).expand(-1, C.heads, -1)
        k, v = torch.cat((kb[..., :C.nope], kp), -1).transpose(0, 1), kb[..., C.nope:].transpose(0, 1)
        r = C.rope
        ki = F.layer_norm(F.linear(xn, w("indexer.wk")), (C.index_dim,), w("indexer.k_norm"), P[a + "indexer.k_norm.bias"], 1e-6)
        ki = torch.cat((rope(ki[:, :r], cos, sin), ki[:, r:]), -1)
        if cache: k, v, ki = (torch.cat((o, z), d) for o, z, d in zip(cache[i], (k, v, ki), (1, 1, 0)))
        new.append((k, v, ki))
        m = vis
        if sparse and T > C.index_topk:
            qi = F.linear(qr, w("indexer.wq_b")).view(n, C.index_heads, C.index_dim)
            qi = torch.cat((rope(qi[..., :r], cos[:, None], sin[:, None]), qi[..., r:]), -1)
            wi = F.linear(xn, w("indexer.weights_proj")) * (C.index_heads * C.index_dim) ** -0.5
            I = sum(F.relu(qi[:, h] @ ki.t()) * wi[:, h:h + 1] for h in range(C.index_heads)).masked_fill(~vis, NEG)
            m = vis & topk_mask(I, C.index_topk) if i not in SHARED else last   # SHARED: as GLM-5.2's shared layers do
        last = m
        o = [torch.softmax((q[h] @ k[h].t() * SM).masked_fill(~m, NEG), -1) @ v[h] for h in range(C.heads)]
        x = x + F.linear(torch.stack(o, 1).reshape(n, -1), w("o_proj"))
        y = rms(x, P[p + "post_attention_layernorm.weight"], C.eps)
        mm = p + "mlp."
        ffn = lambda y, g, u, d: F.linear(F.silu(F.linear(y, g)) * F.linear(y, u), d)
        if i < C.dense_layers: x = x + ffn(y, P[mm + "gate_proj.weight"], P[mm + "up_proj.weight"], P[mm + "down_proj.weight"]); continue
        g, sel = gates(y, P[mm + "gate.weight"], P[mm + "gate.e_score_correction_bias"])
        out = ffn(y, P[mm + "shared_experts.gate_proj.weight"], P[mm + "shared_experts.up_proj.weight"], P[mm + "shared_experts.down_proj.weight"])
        for e in range(C.experts):
            j = sel[:, e].nonzero()[:, 0]
            if len(j): out[j] += g[j, e:e + 1] * ffn(y[j], P[mm + "experts.gate_proj"][e], P[mm + "experts.up_proj"][e], P[mm + "experts.down_proj"][e])
        x = x + out
    cache[:] = new
    return F.linear(rms(x[-1], P["model.norm.weight"], C.eps), P["lm_head.weight"])


def generate_cached(P, prompt, max_new, stop, sparse=True):
    cache, out, ids = [], [], torch.tensor(prompt)
    while len(ids) > 256: cached_step(P, ids[:256], cache, sparse); ids = ids[256:]
    for _ in range(max_new):
        k = int(cached_step(P, ids, cache, sparse).argmax())
        if k in stop: break
        out.append(k); ids = torch.tensor([k])
    return out


# ---------------------------------------------------------------- weights on disk
KEEP32 = ("norm.weight", "norm.bias", "mlp.gate.weight", "bias", "weights_proj.weight", "layernorm.weight")


def save_weights(P, path):
    z = {n: t.detach().float().cpu().numpy() for n, t in P.items()}
    z = {n: a if n.endswith(KEEP32) else a.astype(np.float16) for n, a in z.items()}
    with open(path + ".tmp", "wb") as f: np.savez(f, **z)
    os.replace(path + ".tmp", path)


def load_weights(path, device="cpu", dtype=torch.float32, q8=False):
    z = np.load(path)
    P = {}
    for n in z.files:
        a = z[n]
        if q8 and not n.endswith(KEEP32): a = q8_round(n, a)
        t = torch.from_numpy(a.astype(np.float32)).to(device)
        P[n] = t if n.endswith(KEEP32) else t.to(dtype)
    return P


def q8_round(n, a):
    """Through Q8_0 and back, in the orientation that the GGUF stores (the K half of kv_b is stored transposed)."""
    a = a.astype(np.float32)
    if n.endswith("kv_b_proj.weight"):
        h = a.reshape(C.heads, C.nope + C.vdim, C.kv_rank)
        k = q8_rows(h[:, :C.nope].transpose(0, 2, 1).copy()).transpose(0, 2, 1)
        return np.concatenate((k, q8_rows(h[:, C.nope:].copy())), 1).reshape(a.shape)
    return q8_rows(a)


def q8_rows(a):
    b = a.reshape(-1, 32)
    d = (np.abs(b).max(1, keepdims=True) / 127.0).astype(np.float16).astype(np.float32)
    inv = np.where(d > 0, 1.0 / np.where(d > 0, d, 1), 0)
    return (np.clip(np.rint(b * inv), -127, 127) * d).astype(np.float32).reshape(a.shape)


# ---------------------------------------------------------------- optimizer
def zeropower(G):
    """Nearest semi-orthogonal matrices, by Newton-Schulz (Muon's quintic)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G.to(bf)
    t = X.size(-2) > X.size(-1)
    if t: X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if t else X


class Muon:
    def __init__(self, params):
        self.groups = {}
        for p in params: self.groups.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.buf = {id(p): torch.zeros_like(p) for p in params}

    @torch.no_grad()
    def step(self, lr, wd, mom=0.95):
        for (r, c), ps in self.groups.items():
            gs = [p.grad if p.grad is not None else torch.zeros_like(p) for p in ps]
            bs = [self.buf[id(p)] for p in ps]
            torch._foreach_mul_(bs, mom); torch._foreach_add_(bs, gs, alpha=1 - mom)
            us = torch._foreach_mul(gs, 1 - mom); torch._foreach_add_(us, bs, alpha=mom)
            U = zeropower(torch.cat([u.reshape(-1, r, c) for u in us]))
            sc = max(1.0, r / c) ** 0.5
            torch._foreach_mul_(ps, 1 - lr * wd)
            i = 0
            ups = []
            for p in ps:
                k = p.numel() // (r * c)
                ups.append(U[i:i + k].reshape(p.shape).float()); i += k
            torch._foreach_add_(ps, ups, alpha=-lr * sc)

    def state(self, names): return {names[id(p)]: self.buf[id(p)] for g in self.groups.values() for p in g}


def make_opt(P):
    muon, emb, small, idx = [], [], [], []
    for n, p in P.items():
        if is_bias(n): continue
        if ".indexer." in n: idx.append(p)
        elif n in ("model.embed_tokens.weight", "lm_head.weight"): emb.append(p)
        elif p.dim() < 2 or n.endswith("mlp.gate.weight"): small.append(p)
        else: muon.append(p)
    adam = torch.optim.AdamW([dict(params=emb, base=3e-3, lr=0, weight_decay=0.0), dict(params=small, base=2e-3, lr=0, weight_decay=0.0), dict(params=idx, base=1.5e-3, lr=0, weight_decay=0.01)],
                             betas=(0.9, 0.97), eps=1e-10, **({"fused": True} if P["lm_head.weight"].is_cuda else {}))
    return Muon(muon), adam, [p for p in emb + small]


# ---------------------------------------------------------------- data workers
KINDS = {"S": (256, 256) if D.STAGE < 3 else (128, 512), "L": (32, 2048), "X": (16, 4096)}
PROSE = {"S": 0.30, "L": 0.20, "X": 0.12} if D.STAGE == 1 else {"S": 0.22, "L": 0.10, "X": 0.06}


def worker(seed, qs, prose_path, stop, sizes):
    try: os.nice(5)
    except Exception: pass
    mk = D.Maker(D.Tokenizer(), D.Prose(prose_path), seed)
    r = random.Random(seed)
    while not stop.is_set():
        k = min(qs, key=lambda k: (qs[k].qsize() / (24 if k == "S" else 12), r.random()))
        if qs[k].full(): time.sleep(0.02); continue
        B, T = sizes[k]
        i, w, s = mk.batch(B, T, PROSE[k])
        try: qs[k].put((i.astype(np.int16), w.astype(np.float16), s.astype(np.int16)), timeout=2)
        except queue.Full: pass


class Feed:
    def __init__(self, prose, n, seed, sizes=KINDS):
        ctx = mp.get_context("fork")
        self.stop = ctx.Event()
        self.qs = {"S": ctx.Queue(24), "L": ctx.Queue(12), "X": ctx.Queue(12)}
        self.ps = [ctx.Process(target=worker, args=(seed * 1000 + i, self.qs, prose, self.stop, sizes), daemon=True) for i in range(n)]
        for p in self.ps: p.start()

    def get(self, k, dev):
        i, w, s = self.qs[k].get()
        f = lambda a, t: torch.from_numpy(a).pin_memory().to(dev, non_blocking=True).to(t) if dev != "cpu" else torch.from_numpy(a).to(t)
        return f(i, torch.long), f(w, torch.float32), f(s, torch.long)

    def close(self):
        self.stop.set()
        for p in self.ps: p.terminate()


def plan(p, r):
    """(kind, mode) of a step at progress p."""
    u = r.random()
    if D.STAGE >= 2: k = "S" if u < 0.42 else "L" if u < 0.90 else "X"; return k, "plain" if k == "S" else "sparse"
    if p < 0.06: return "S", "plain"
    if p < 0.48: k = "S" if u < 0.66 else "L" if u < 0.96 else "X"
    else: k = "S" if u < 0.55 else "L" if u < 0.90 else "X"
    return (k, "plain") if k == "S" else (k, "dense" if p < 0.48 else "sparse")


def lr_at(p, step):
    if D.STAGE >= 2: return min(1.0, (step + 1) / 40) * min(0.45, max(0.004, 0.53 * (1 - p)))
    w = min(1.0, (step + 1) / 150)
    return w * (1.0 if p < 0.4 else max(0.015, 1 - (p - 0.4) / 0.6))


def train_step(tr, muon, adam, clip, batch, mode, lr, lr_muon, bias_rate, P):
    tot, parts, loads = tr.loss(*batch, mode)
    tot.backward()
    torch.nn.utils.clip_grad_norm_(clip, 1.0)
    for g in adam.param_groups: g["lr"] = g["base"] * lr
    muon.step(lr_muon * lr, 0.05)
    adam.step()
    for p in P.values(): p.grad = None
    with torch.no_grad():
        for i, ld in enumerate(loads):
            if ld is not None and bias_rate:
                b = P[f"model.layers.{i}.mlp.gate.e_score_correction_bias"]
                b += bias_rate * torch.sign(ld.mean() - ld)
    return parts, loads


def cmd_train(a):
    dev = a.device
    if dev == "cpu": KINDS.update({"S": (2, 256), "L": (1, 1024), "X": (1, 1024)})   # only to see that the loop runs
    os.makedirs(a.dir, exist_ok=True)
    feed = Feed(a.prose, a.workers, int(time.time()) % 100000)
    P = init(1, dev)
    muon, adam, clip = make_opt(P)
    names = {id(p): n for n, p in P.items()}
    step, spent, tokens = 0, 0.0, 0
    ck = a.dir + "/ckpt.pt"
    if os.path.exists(ck):
        z = torch.load(ck, map_location=dev)
        with torch.no_grad():
            for n in P: P[n].copy_(z["P"][n])
            for p_, b in muon.buf.items(): b.copy_(z["muon"][names[p_]])
        adam.load_state_dict(z["adam"]); step, spent, tokens = z["step"], z["spent"], z["tokens"]
        print("resumed at step", step, "spent", spent, flush=True)
        if a.restart: spent = 0.0
    elif a.init_weights:
        if a.init_weights.endswith(".gguf"):
            import export_gguf
            W = {n: torch.from_numpy(np.ascontiguousarray(x)).to(dev) for n, x in export_gguf.load_hf(a.init_weights)[1].items()}
        else: W = load_weights(a.init_weights, dev)
        with torch.no_grad():
            for n in P: P[n].copy_(W[n])
        spent = a.start_spent
    tr = Trainer(P, dev, compile=dev != "cpu")
    rng = random.Random(step + 17)
    t0 = time.time() - spent
    last_save, acc, tlog, nlog = time.time(), {}, time.time(), 0
    log = open(a.dir + "/log.jsonl", "a")

    def save(final=False):
        torch.save(dict(P=P, muon=muon.state(names), adam=adam.state_dict(), step=step, spent=time.time() - t0, tokens=tokens), ck + ".tmp")
        os.replace(ck + ".tmp", ck)
        save_weights(P, a.dir + "/weights.npz")

    while True:
        p = (time.time() - t0) / a.budget
        if p >= 1 or os.path.exists(a.dir + "/stop"): break
        k, mode = plan(p, rng)
        batch = feed.get(k, dev)
        bias_rate = 0.001 if p < 0.8 else 0.0003 if p < 0.95 else 0.0
        parts, loads = train_step(tr, muon, adam, clip, batch, mode, lr_at(p, step), a.lr_muon, bias_rate, P)
        step += 1; tokens += KINDS[k][0] * KINDS[k][1]; nlog += KINDS[k][0] * KINDS[k][1]
        acc.setdefault(k, []).append(torch.stack(parts))
        if step % (100 if dev != "cpu" else 2) == 0:
            m = {k: [round(float(v), 4) for v in torch.stack(x).mean(0)] for k, x in acc.items()}
            imb = [round(float(l.max() / l.mean()), 2) for l in loads if l is not None]
            q = {k: v.qsize() for k, v in feed.qs.items()}
            msg = dict(step=step, p=round(p, 4), Mtok=round(tokens / 1e6, 1), tps=int(nlog / (time.time() - tlog)), loss=m, imb=imb, q=q, mem=round(torch.cuda.max_memory_allocated() / 2**30, 1) if dev != "cpu" else 0)
            print(json.dumps(msg), flush=True); log.write(json.dumps(msg) + "\n"); log.flush()
            acc, tlog, nlog = {}, time.time(), 0
        if time.time() - last_save > 100: save(); last_save = time.time()
    save(True)
    feed.close()
    open(a.dir + "/done", "w").write(json.dumps(dict(step=step, tokens=tokens, spent=time.time() - t0)))
    print("finished", step, tokens, flush=True)


# ---------------------------------------------------------------- evaluation
def visible(text):
    if "</think>" in text: text = text.split("</think>", 1)[1]
    elif "<think>" in text: text = ""
    return text


def evaluate(P, items, tok, sparse):
    stop = {tok.special[s] for s in ("<|endoftext|>", "<|user|>", "<|observation|>")}
    order = sorted(range(len(items)), key=lambda i: items[i]["prompt_tokens"])
    res = [None] * len(items)
    i = 0
    while i < len(order):
        L = items[order[i]]["prompt_tokens"]
        n = 96 if L < 150 else 48 if L < 500 else 16 if L < 2500 else 8
        b = order[i:i + n]; i += n
        if not P["lm_head.weight"].is_cuda: outs = [generate_cached(P, tok.encode(items[j]["prompt"]), items[j]["max_new"], stop, sparse) for j in b]
        else: outs = generate(P, [tok.encode(items[j]["prompt"]) for j in b], [items[j]["max_new"] for j in b], stop, sparse)
        for j, o in zip(b, outs):
            it = items[j]
            t = tok.decode(o)
            v = visible(t) if it["mode"] == "think" else t
            ok = v.startswith(it["expect"]) if it["match"] == "prefix" else v.strip() == it["expect"].strip()
            res[j] = dict(id=it["id"], out=t, ok=bool(ok))
    by = {}
    for it, r in zip(items, res): by.setdefault(it["skill"], []).append(r["ok"])
    return res, {k: [sum(v), len(v)] for k, v in by.items()}


def cmd_eval(a):
    tok = D.Tokenizer()
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    items = [json.loads(l) for l in open(a.set)]
    if a.weights.endswith(".gguf"):
        import export_gguf
        P = {n: torch.from_numpy(np.array(x)).to(dev) for n, x in export_gguf.load_hf(a.weights)[1].items()}
    else: P = load_weights(a.weights, dev, torch.bfloat16 if a.bf16 and dev == "cuda" else torch.float32, a.q8)
    if a.bf16 and dev == "cpu": P = {n: x if n.endswith(KEEP32) else x.to(bf).float() for n, x in P.items()}   # weights rounded, arithmetic float32
    t = time.time()
    res, by = evaluate(P, items, tok, not a.dense)
    tot = [sum(x) for x in zip(*by.values())]
    print(a.set, "dense" if a.dense else "sparse", "bf16" if a.bf16 else "f32", "q8" if a.q8 else "", tot, json.dumps(by), f"{time.time() - t:.1f}s", flush=True)
    json.dump(dict(by=by, total=tot, res=res), open(a.out, "w"))


# ---------------------------------------------------------------- smoke test
def hf_state(P):
    out = {}
    for n, t in P.items():
        if f"layers.{C.layers}." in n: continue
        if n.endswith("experts.gate_proj"): out[n.replace("gate_proj", "gate_up_proj")] = torch.cat((t, P[n.replace("gate_proj", "up_proj")]), 1)
        elif n.endswith("experts.up_proj"): continue
        else: out[n] = t
    return {n: t.detach().clone() for n, t in out.items()}


def compare_hf(P, dev):
    global EPS_INNER
    import transformers
    from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM
    old = C.index_topk
    C.index_topk = 64; EPS_INNER = 1e-6
    try:
        cfg = GlmMoeDsaConfig(vocab_size=C.vocab, hidden_size=C.hidden, intermediate_size=C.dense_ffn, moe_intermediate_size=C.moe_ffn, num_hidden_layers=C.layers, num_attention_heads=C.heads,
                              num_key_value_heads=C.heads, n_shared_experts=1, n_routed_experts=C.experts, routed_scaling_factor=C.scale, kv_lora_rank=C.kv_rank, q_lora_rank=C.q_rank,
                              qk_rope_head_dim=C.rope, v_head_dim=C.vdim, qk_nope_head_dim=C.nope, n_group=1, topk_group=1, num_experts_per_tok=C.topk, norm_topk_prob=True,
                              mlp_layer_types=["dense"] * C.dense_layers + ["sparse"] * (C.layers - C.dense_layers), max_position_embeddings=C.ctx, rms_norm_eps=C.eps, index_topk=C.index_topk,
                              index_head_dim=C.index_dim, index_n_heads=C.index_heads, tie_word_embeddings=False, rope_parameters={"rope_theta": C.theta, "rope_type": "default"},
                              attn_implementation="eager", pad_token_id=0, eos_token_id=0, bos_token_id=0)
        print("transformers", transformers.__version__, "indexer", getattr(cfg, "indexer_types", None), "rope", getattr(cfg, "rope_parameters", None), "interleave", getattr(cfg, "indexer_rope_interleave", None))
        m = GlmMoeDsaForCausalLM(cfg).to(dev).float().eval()
        sd, mine = m.state_dict(), hf_state(P)
        miss, extra = [k for k in sd if k not in mine], [k for k in mine if k not in sd]
        print("HF keys missing", miss[:10], len(miss), "extra", extra[:10], len(extra))
        m.load_state_dict({k: v for k, v in mine.items() if k in sd}, strict=False)
        for b in ("e_score_correction_bias",):
            for n, x in m.named_buffers():
                if n.endswith(b): x.copy_(P[n])
        g = torch.Generator().manual_seed(3)
        ids = torch.randint(0, 3500, (2, 200), generator=g).to(dev)
        with torch.no_grad():
            for T in (48, 200):
                ref = m(input_ids=ids[:, :T], use_cache=False).logits.float()
                for sp in (True, False):
                    my = plain_forward(P, ids[:, :T], sp)
                    e = (my - ref).abs().max().item(); r = ((my - ref).norm() / ref.norm()).item()
                    agree = (my.argmax(-1) == ref.argmax(-1)).float().mean().item()
                    print(f"HF T={T} sparse={sp}: max abs {e:.2e} rel {r:.2e} argmax {agree:.4f}", flush=True)
    finally:
        C.index_topk = old; EPS_INNER = C.eps


def cmd_smoke(a):
    import traceback
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    t00 = time.time()
    T0 = lambda: f"[{time.time() - t00:6.1f}s]"
    os.makedirs(a.dir, exist_ok=True)
    kinds = KINDS if dev == "cuda" else {"S": (2, 64), "L": (1, 384), "X": (1, 512)}
    feed = Feed(a.prose, a.workers if dev == "cuda" else 1, 5, kinds)
    print(T0(), "torch", torch.__version__, dev, torch.cuda.get_device_name() if dev == "cuda" else "")
    tok = D.Tokenizer()
    try:
        import tokenizers
        ht = tokenizers.Tokenizer.from_file(D.HERE + "/tokenizer.json")
        r = random.Random(1); bad = 0; n = 0
        texts = ["".join(s for s, _ in D.render(D.chat(r), gen=False)) for _ in range(300)] + ["".join(s for s, _ in D.render(x[1], x[0], gen=False)) for x in [D.tool_chat(r) for _ in range(50)]]
        texts += ["na\u00efve caf\u00e9 \u4f60\u597d \U0001f600\n\n  x\t12345 it's I'LL", "  lead", "a\r\n\r\nb   c\n \n d"]
        for t in texts:
            n += 1
            if ht.encode(t, add_special_tokens=False).ids != tok.encode(t): bad += 1; print("DIFF", repr(t)[:200])
        print(T0(), "tokenizers library agrees on", n - bad, "of", n)
    except Exception: traceback.print_exc()
    P = init(1, dev)
    # make the indexer and router non-trivial for the comparison
    Q = {n: (t.detach() * (30 if n.endswith("lm_head.weight") else 1)).clone() for n, t in P.items()}
    g = torch.Generator().manual_seed(9)
    for n in Q:
        if is_bias(n): Q[n] = (torch.randn(Q[n].shape, generator=g) * 0.1).to(dev)
        if n.endswith("layernorm.weight") or n.endswith("norm.weight"): Q[n] = (1 + 0.2 * torch.randn(Q[n].shape, generator=g)).to(dev)
    try: compare_hf(Q, dev)
    except Exception: traceback.print_exc()
    print(T0(), "HF comparison done", flush=True)
    tr = Trainer(P, dev, compile=dev == "cuda" and not a.nocompile)
    muon, adam, clip = make_opt(P)
    names = {id(p): n for n, p in P.items()}
    # the training form against the plain form
    for k, mode in (("S", "plain"), ("L", "dense"), ("L", "sparse"), ("X", "dense"), ("X", "sparse")):
        b = feed.get(k, dev)
        t1 = time.time()
        tot, parts, loads = tr.loss(*b, mode)
        tot.backward()
        if dev == "cuda": torch.cuda.synchronize()
        t2 = time.time()
        nb, T = 2, b[0].shape[1] - 2
        bb = [x[:nb] for x in b]
        lg = plain_forward({n: t.detach() for n, t in P.items()}, bb[0][:, :T], mode == "sparse", bb[2][:, :T].contiguous())
        ce = F.cross_entropy(lg.reshape(-1, C.vocab), bb[0][:, 1:T + 1].reshape(-1), reduction="none")
        w = bb[1][:, 1:T + 1].reshape(-1)
        plain = ((ce * w).sum() / w.sum()).item()
        print(T0(), k, mode, "first call", round(t2 - t1, 1), "s; loss all rows", [round(float(x), 4) for x in parts], "plain f32 of 2 rows", round(plain, 4), "grad finite", all(bool(torch.isfinite(p.grad).all()) for p in P.values() if p.grad is not None), flush=True)
        for p in P.values(): p.grad = None
    n1, n2 = (40, 120) if dev == "cuda" else (2, 2)
    for k, mode in (("S", "plain"), ("L", "dense"), ("L", "sparse"), ("X", "sparse")):
        B, T = kinds[k]
        n = {"S": n1, "L": n1 // 4, "X": n1 // 8}[k] if dev == "cuda" else 1
        bs = [feed.get(k, dev) for _ in range(n)]
        if dev == "cuda": torch.cuda.synchronize()
        t1 = time.time()
        for b in bs: parts, loads = train_step(tr, muon, adam, clip, b, mode, 0.3, a.lr_muon, 0.001, P)
        if dev == "cuda": torch.cuda.synchronize()
        dt = (time.time() - t1) / n
        print(T0(), k, mode, f"{dt * 1e3:.1f} ms/step {B * T / dt / 1e3:.0f} ktok/s", [round(float(x), 4) for x in parts], "GiB", round(torch.cuda.max_memory_allocated() / 2**30, 1) if dev == "cuda" else "", flush=True)
    t1 = time.time(); tw = 0.0
    for i in range(n2):
        tb = time.time(); b = feed.get("S", dev); tw += time.time() - tb
        parts, loads = train_step(tr, muon, adam, clip, b, "plain", min(1, (i + 20) / 100), a.lr_muon, 0.001, P)
        if i % 20 == 0: print("  step", i, [round(float(x), 4) for x in parts], flush=True)
    print(T0(), f"{n2} steps in {time.time() - t1:.1f}s, waited {tw:.1f}s for data", [round(float(x), 4) for x in parts], "queues", {k: q.qsize() for k, q in feed.qs.items()}, flush=True)
    # save, restore, continue: the same batch gives the same loss
    torch.save(dict(P=P, muon=muon.state(names), adam=adam.state_dict(), step=1, spent=0.0, tokens=0), a.dir + "/smoke.pt")
    b = feed.get("S", dev)
    with torch.no_grad(): l1 = tr.loss(*b, "plain")[1][0].item()
    z = torch.load(a.dir + "/smoke.pt", map_location=dev)
    P2 = init(2, dev); m2, a2, _ = make_opt(P2)
    with torch.no_grad():
        for n in P2: P2[n].copy_(z["P"][n])
    a2.load_state_dict(z["adam"]); nm2 = {id(p): n for n, p in P2.items()}
    for i_, bb in m2.buf.items(): bb.copy_(z["muon"][nm2[i_]])
    tr.P = P2
    with torch.no_grad(): l2 = tr.loss(*b, "plain")[1][0].item()
    print(T0(), "restore: loss", l1, l2, flush=True)
    save_weights(P, a.dir + "/smoke_w.npz")
    print(T0(), "weights file", os.path.getsize(a.dir + "/smoke_w.npz"), "parameters", sum(p.numel() for p in P.values()))
    W = load_weights(a.dir + "/smoke_w.npz", dev)
    r = random.Random(4)
    for pr in ("The capital of France is", "1, 2, 3,"):
        print(repr(pr), repr(tok.decode(generate(W, [tok.encode(pr)], [20], set())[0])))
    feed.close()
    print(T0(), "smoke done", flush=True)


# ---------------------------------------------------------------- reference outputs of the exported file
def ref_prompts(split, tok):
    """Five prompts: plain, chat, chat with thinking, tools, and a text of more than 1,500 tokens."""
    r = random.Random(4242 + split)
    out = [("plain", ["The capital of France is Paris. The capital of Japan is Tokyo. The capital of Peru is", "Monday, Tuesday, Wednesday, Thursday,"][split])]
    chat = lambda ms, tools=None, think=False: "".join(s for s, _ in D.render(ms, tools, think=think, gen=True))
    u = D.draw(r, "sort", split)
    out.append(("chat", chat([{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": u[1]}])))
    out.append(("think", chat([{"role": "user", "content": D.draw(r, "add", split)[1]}], think=True)))
    while True:
        tools, ms = D.tool_chat(r)
        if len(tools) >= 2 and ms[1].get("calls"): break
    out.append(("tools", chat(ms[:1], tools)))
    fs = D.facts(r, 8); parts, tot = [], 0
    while tot < 1500:
        s = " ".join(D.sentence(r) for _ in range(r.randrange(2, 7))); parts.append(s); tot += len(tok.text(s)) + 1
    for f in fs: parts.insert(r.randrange(len(parts) + 1), f[0])
    out.append(("long", chat([{"role": "user", "content": "Read this text:\n" + "\n".join(parts) + "\n\nQuestion: " + fs[0][1]}])))
    return out


def cmd_ref(a):
    """--weights is a GGUF; writes OUT (npz) and OUT.json beside it."""
    import export_gguf
    tok = D.Tokenizer()
    _, H = export_gguf.load_hf(a.weights)
    P = {n: torch.from_numpy(np.array(x)) for n, x in H.items()}
    z, info = {}, dict(file=os.path.basename(a.weights), arithmetic="float32", attention="sparse (top-256 by the indexer; ties: lower position)", prompts=[])
    for n, (name, text) in enumerate(ref_prompts(a.split, tok)):
        ids = tok.encode(text)
        cont = generate_cached(P, ids, 16, set())
        full = torch.tensor([ids + cont])
        probe, stat = {}, []
        lg, dr = plain_forward(P, full, True, mtp=True, stat=stat, probe=probe)
        lp = torch.log_softmax(lg[0], -1)
        t = lp.topk(20, -1)
        z[f"p{n}_tokens"] = full[0].numpy().astype(np.int16); z[f"p{n}_top_ids"] = t.indices.numpy().astype(np.int16); z[f"p{n}_top_logprobs"] = t.values.numpy().astype(np.float32)
        z[f"p{n}_hidden_last"] = torch.stack(probe["hidden"]).numpy()
        m = torch.log_softmax(dr[0], -1).topk(5, -1)
        z[f"p{n}_mtp_ids"] = m.indices.numpy().astype(np.int16); z[f"p{n}_mtp_logprobs"] = m.values.numpy().astype(np.float32)
        T = full.shape[1]
        item = dict(name=name, prompt=text, n_prompt=len(ids), greedy_ids=cont, greedy_text=tok.decode(cont),
                    n_until_stop=next((i for i, k in enumerate(cont) if k in {tok.special[s] for s in ("<|endoftext|>", "<|user|>", "<|observation|>")}), len(cont)))
        acc = (dr[0, :-1].argmax(-1) == lg[0, 1:-1].argmax(-1)).float() if T > 2 else None
        if acc is not None: item["mtp_agrees_with_main"] = round(acc.mean().item(), 3)
        if T > C.index_topk:
            qs = [q for q in (300, 700, 1100, 1500, len(ids) - 1) if q < T]
            z[f"p{n}_selected_queries"] = np.array(qs, np.int16)
            z[f"p{n}_selected"] = np.stack([np.stack([np.nonzero(s[q].numpy())[0].astype(np.int16) for q in qs]) for s in probe["selected"]])
            item["rows_with_tie_at_the_cut"] = [round(x[0], 4) for x in stat]; item["dense_attention_mass_selected"] = [round(x[1], 4) for x in stat]
            dl = plain_forward(P, full, False)
            item["argmax_same_if_dense"] = round((dl[0].argmax(-1) == lg[0].argmax(-1)).float().mean().item(), 4)
            d = torch.log_softmax(dl[0], -1).topk(20, -1)
            z[f"p{n}_dense_top_ids"] = d.indices.numpy().astype(np.int16); z[f"p{n}_dense_top_logprobs"] = d.values.numpy().astype(np.float32)
        info["prompts"].append(item); print(name, len(ids), repr(item["greedy_text"]), {k: v for k, v in item.items() if k not in ("prompt", "greedy_ids", "greedy_text", "name")})
    np.savez_compressed(a.out, **z)
    json.dump(info, open(a.out.replace(".npz", ".json"), "w"), ensure_ascii=False, indent=1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("cmd")
    ap.add_argument("--dir", default="run"); ap.add_argument("--budget", type=float, default=600); ap.add_argument("--prose", default="prose.npz")
    ap.add_argument("--workers", type=int, default=10); ap.add_argument("--lr-muon", dest="lr_muon", type=float, default=0.01)
    ap.add_argument("--init-weights", dest="init_weights"); ap.add_argument("--start-spent", dest="start_spent", type=float, default=0)
    ap.add_argument("--weights"); ap.add_argument("--set"); ap.add_argument("--out"); ap.add_argument("--dense", action="store_true"); ap.add_argument("--bf16", action="store_true"); ap.add_argument("--q8", action="store_true")
    ap.add_argument("--device", default="cuda"); ap.add_argument("--nocompile", action="store_true"); ap.add_argument("--restart", action="store_true", help="count the budget from zero after resuming"); ap.add_argument("--split", type=int, default=0)
    a = ap.parse_args()
    dict(train=cmd_train, smoke=cmd_smoke, eval=cmd_eval, ref=cmd_ref)[a.cmd](a)


if __name__ == "__main__":
    main()
