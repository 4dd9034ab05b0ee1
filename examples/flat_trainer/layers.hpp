// SPDX-License-Identifier: Apache-2.0
// The layers of a GPT-2 on raw pointers, forward and backward, in the style of llm.c. No trainer changes a line of
// it. REAL is float or double. B: rows of a batch, T: tokens of a row, C: channels, NH: heads, V: vocabulary.
#pragma once

#include <cmath>
#include <cstddef>

#ifndef REAL
#define REAL float
#endif
typedef REAL real;

inline void encoder_forward(real* out, const int* inputs, const real* wte, const real* wpe, int B, int T, int C) {
    for (int bt = 0; bt < B * T; ++bt) {
        for (int c = 0; c < C; ++c) { out[bt * C + c] = wte[inputs[bt] * C + c] + wpe[bt % T * C + c]; }
    }
}
inline void encoder_backward(real* dwte, real* dwpe, const real* dout, const int* inputs, int B, int T, int C) {
    for (int bt = 0; bt < B * T; ++bt) {
        for (int c = 0; c < C; ++c) {
            dwte[inputs[bt] * C + c] += dout[bt * C + c];
            dwpe[bt % T * C + c] += dout[bt * C + c];
        }
    }
}

inline void layernorm_forward(real* out, real* mean, real* rstd, const real* in, const real* weight, const real* bias,
                              int BT, int C) {
#pragma omp parallel for
    for (int bt = 0; bt < BT; ++bt) {
        const real* x = in + bt * C;
        real m = 0;
        for (int c = 0; c < C; ++c) { m += x[c]; }
        m /= C;
        real v = 0;
        for (int c = 0; c < C; ++c) { v += (x[c] - m) * (x[c] - m); }
        const real s = 1 / std::sqrt(v / C + real(1e-5));
        for (int c = 0; c < C; ++c) { out[bt * C + c] = (x[c] - m) * s * weight[c] + bias[c]; }
        mean[bt] = m;
        rstd[bt] = s;
    }
}
// din is added to; so are the gradients of all weights.
inline void layernorm_backward(real* din, real* dweight, real* dbias, const real* dout, const real* in,
                               const real* weight, const real* mean, const real* rstd, int BT, int C) {
    for (int bt = 0; bt < BT; ++bt) {
        const real* x = in + bt * C;
        const real* dy = dout + bt * C;
        real sum = 0;
        real weighted = 0;
        for (int c = 0; c < C; ++c) {
            const real normed = (x[c] - mean[bt]) * rstd[bt];
            dweight[c] += normed * dy[c];
            dbias[c] += dy[c];
            sum += weight[c] * dy[c];
            weighted += weight[c] * dy[c] * normed;
        }
        for (int c = 0; c < C; ++c) {
            const real normed = (x[c] - mean[bt]) * rstd[bt];
            din[bt * C + c] += (weight[c] * dy[c] - sum / C - normed * weighted / C) * rstd[bt];
        }
    }
}

// out [BT, OC] = in [BT, C] weight^T [OC, C] + bias [OC]; without a bias: null.
inline void matmul_forward(real* out, const real* in, const real* weight, const real* bias, int BT, int C, int OC) {
#pragma omp parallel for
    for (int bt = 0; bt < BT; ++bt) {
        for (int o = 0; o < OC; ++o) {
            real sum = bias != nullptr ? bias[o] : 0;
            for (int c = 0; c < C; ++c) { sum += in[bt * C + c] * weight[o * C + c]; }
            out[bt * OC + o] = sum;
        }
    }
}
inline void matmul_backward(real* din, real* dweight, real* dbias, const real* dout, const real* in,
                            const real* weight, int BT, int C, int OC) {
#pragma omp parallel for
    for (int bt = 0; bt < BT; ++bt) {
        for (int o = 0; o < OC; ++o) {
            for (int c = 0; c < C; ++c) { din[bt * C + c] += weight[o * C + c] * dout[bt * OC + o]; }
        }
    }
#pragma omp parallel for
    for (int o = 0; o < OC; ++o) {
        for (int bt = 0; bt < BT; ++bt) {
            if (dbias != nullptr) { dbias[o] += dout[bt * OC + o]; }
            for (int c = 0; c < C; ++c) { dweight[o * C + c] += in[bt * C + c] * dout[bt * OC + o]; }
        }
    }
}

// qkv [B, T, 3C]; attention [B, NH, T, T], of which a row holds the weights up to its own token.
inline void attention_forward(real* out, real* attention, const real* qkv, int B, int T, int C, int NH) {
    const int head = C / NH;
    const real scale = 1 / std::sqrt(real(head));
#pragma omp parallel for collapse(2)
    for (int b = 0; b < B; ++b) {
        for (int h = 0; h < NH; ++h) {
            for (int t = 0; t < T; ++t) {
                const real* q = qkv + (b * T + t) * 3 * C + h * head;
                real* row = attention + ((b * NH + h) * T + t) * T;
                real largest = -10000;
                for (int s = 0; s <= t; ++s) {
                    const real* k = qkv + (b * T + s) * 3 * C + C + h * head;
                    real dot = 0;
                    for (int i = 0; i < head; ++i) { dot += q[i] * k[i]; }
                    row[s] = dot * scale;
                    if (row[s] > largest) { largest = row[s]; }
                }
                real sum = 0;
                for (int s = 0; s <= t; ++s) {
                    row[s] = std::exp(row[s] - largest);
                    sum += row[s];
                }
                real* y = out + (b * T + t) * C + h * head;
                for (int i = 0; i < head; ++i) { y[i] = 0; }
                for (int s = 0; s <= t; ++s) {
                    row[s] /= sum;
                    const real* v = qkv + (b * T + s) * 3 * C + 2 * C + h * head;
                    for (int i = 0; i < head; ++i) { y[i] += row[s] * v[i]; }
                }
            }
        }
    }
}
// dscore: T numbers of scratch for each head of each row of the batch.
inline void attention_backward(real* dqkv, real* dscore, const real* dout, const real* qkv, const real* attention,
                               int B, int T, int C, int NH) {
    const int head = C / NH;
    const real scale = 1 / std::sqrt(real(head));
#pragma omp parallel for collapse(2)
    for (int b = 0; b < B; ++b) {
        for (int h = 0; h < NH; ++h) {
            real* d = dscore + (b * NH + h) * T;
            for (int t = 0; t < T; ++t) {
                const real* dy = dout + (b * T + t) * C + h * head;
                const real* row = attention + ((b * NH + h) * T + t) * T;
                real weighted = 0;
                for (int s = 0; s <= t; ++s) {
                    const real* v = qkv + (b * T + s) * 3 * C + 2 * C + h * head;
                    real* dv = dqkv + (b * T + s) * 3 * C + 2 * C + h * head;
                    d[s] = 0;
                    for (int i = 0; i < head; ++i) {
                        d[s] += v[i] * dy[i];
                        dv[i] += row[s] * dy[i];
                    }
                    weighted += row[s] * d[s];
                }
                const real* q = qkv + (b * T + t) * 3 * C + h * head;
                real* dq = dqkv + (b * T + t) * 3 * C + h * head;
                for (int s = 0; s <= t; ++s) {
                    const real* k = qkv + (b * T + s) * 3 * C + C + h * head;
                    real* dk = dqkv + (b * T + s) * 3 * C + C + h * head;
                    const real each = row[s] * (d[s] - weighted) * scale;
                    for (int i = 0; i < head; ++i) {
                        dq[i] += k[i] * each;
                        dk[i] += q[i] * each;
                    }
                }
            }
        }
    }
}

// GPT-2's approximation by tanh.
inline void gelu_forward(real* out, const real* in, int n) {
    const real s = std::sqrt(real(2 / 3.14159265358979323846));
#pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        const real x = in[i];
        out[i] = real(0.5) * x * (1 + std::tanh(s * (x + real(0.044715) * x * x * x)));
    }
}
inline void gelu_backward(real* din, const real* in, const real* dout, int n) {
    const real s = std::sqrt(real(2 / 3.14159265358979323846));
#pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        const real x = in[i];
        const real t = std::tanh(s * (x + real(0.044715) * x * x * x));
        const real slope = s * (1 + 3 * real(0.044715) * x * x);
        din[i] = dout[i] * real(0.5) * (1 + t + x * (1 - t * t) * slope);
    }
}

// The loss, a mean over BT tokens, and its gradient in the logits' place, for a loss that is the mean over `all`
// tokens.
inline real crossentropy(real* logits, const int* targets, int BT, int V, int all) {
    double loss = 0;
    for (int bt = 0; bt < BT; ++bt) {
        real* row = logits + bt * V;
        real largest = row[0];
        for (int v = 1; v < V; ++v) { largest = row[v] > largest ? row[v] : largest; }
        real sum = 0;
        const real target = row[targets[bt]];
        for (int v = 0; v < V; ++v) {
            row[v] = std::exp(row[v] - largest);
            sum += row[v];
        }
        loss += std::log(sum) + largest - target;
        for (int v = 0; v < V; ++v) { row[v] /= sum * all; }
        row[targets[bt]] -= real(1) / all;
    }
    return real(loss / BT);
}
