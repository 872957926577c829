"""The program's deterministic initialisation in numpy: the same bits as Ops::fill_normal.

Philox 4x32-10 by (seed, purpose 'init', stream, index) and the normal quantile of AS 241, computed by
+ - * / and sqrt on doubles, each rounded once (src/base/philox.h, src/base/normal_quantile.cpp).
"""
import numpy as np

PURPOSE_INIT = 1
MASK = np.uint64(0xFFFFFFFF)


def philox(counter, key0, key1):
    """counter: four uint64 arrays holding 32-bit words; returns four more."""
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((p1 >> np.uint64(32)) ^ c1 ^ key0, p1 & MASK, (p0 >> np.uint64(32)) ^ c3 ^ key1, p0 & MASK)
        key0 = (key0 + np.uint64(0x9E3779B9)) & MASK
        key1 = (key1 + np.uint64(0xBB67AE85)) & MASK
    return c0, c1, c2, c3


def random_words(seed, purpose, stream, count):
    """Words 0 .. count-1 of a stream, as uint32."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    counter = (blocks & MASK, blocks >> np.uint64(32), np.full_like(blocks, stream),
               np.full_like(blocks, int(seed) >> 32))
    words = philox(counter, np.uint64(int(seed) & 0xFFFFFFFF), np.uint64(purpose))
    return np.stack(words, axis=1).reshape(-1)[:count].astype(np.uint32)


def _polynomial(coefficients, x):
    value = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * x + c
    return value


def _log(x):
    m, exponent = np.frexp(x)
    small = m < 0.70710678118654752440
    m = np.where(small, m * 2.0, m)
    exponent = np.where(small, exponent - 1, exponent)
    s = (m - 1.0) / (m + 1.0)
    s2 = s * s
    series = np.full_like(s, 1.0 / 25.0)
    for k in range(23, 0, -2):
        series = series * s2 + 1.0 / k
    return exponent * 0.69314718055994530942 + 2.0 * s * series


CENTRAL = ([3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3, 1.3731693765509461125e+4,
            4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4, 2.5090809287301226727e+3],
           [1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
            2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3])
TAIL = ([1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
         1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4],
        [1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
         1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9])
FAR = ([6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
        2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7],
       [1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
        7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15])


def normal_quantile(p):
    q = p - 0.5
    central_r = 0.180625 - q * q
    central = q * _polynomial(CENTRAL[0], central_r) / _polynomial(CENTRAL[1], central_r)
    r = np.sqrt(-_log(np.where(q < 0, p, 1.0 - p)))
    tail = np.where(r <= 5.0, _polynomial(TAIL[0], r - 1.6) / _polynomial(TAIL[1], r - 1.6),
                    _polynomial(FAR[0], r - 5.0) / _polynomial(FAR[1], r - 5.0))
    return np.where(np.abs(q) <= 0.425, central, np.where(q < 0, -tail, tail))


def fill_normal(seed, stream, count, std_dev):
    """float64 values; the program rounds each once to float32, in every precision."""
    words = random_words(seed, PURPOSE_INIT, stream, count)
    return std_dev * normal_quantile((words.astype(np.float64) + 0.5) * 2.0**-32)


def parameter_names(layers, tied):
    """Tensor names in the order of our parameter table: an index is a tensor's random stream."""
    names = ["model.embed_tokens.weight"]
    if not tied:
        names.append("lm_head.weight")
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        names += [prefix + f"self_attn.{p}_proj.weight" for p in "qkvo"]
        names += [prefix + f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")]
        names += [prefix + f"{p}.weight" for p in ("input_layernorm", "post_attention_layernorm",
                                                   "pre_feedforward_layernorm", "post_feedforward_layernorm")]
    return names + ["model.norm.weight"]


def initial_weights(names, shapes, seed, std_dev, norm_std, pad_token_id):
    """Yields (name, float32 array) of Model::initialise(seed) in any precision, bit for bit. Norm weights
    start at zero; golden tests give them norm_std so that a wrong gain shows (streams behind those of the
    parameters)."""
    for stream, name in enumerate(names):
        shape = shapes[name]
        std, behind = (norm_std, len(names)) if len(shape) == 1 else (std_dev, 0)
        values = np.zeros(shape, np.float32)
        if std > 0:
            values = fill_normal(seed, stream + behind, values.size, std).astype(np.float32).reshape(shape)
        if name == "model.embed_tokens.weight" and pad_token_id is not None:
            values[pad_token_id] = 0
        yield name, values
