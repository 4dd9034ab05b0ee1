// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace train_gpt {

/// The twelve tensors of one transformer block, as parameters (P = const T*) or as their gradients (P = T*).
/// Matrices are stored [outputs, inputs]; C is the width. The rows of the QKV weight lie head by head:
/// [head][query | key | value][C / heads], see AttentionShape. Those that tp splits have 1 / tp of the extent C, 3 C
/// or 4 C that is named first; the others are whole on every tp rank.
template <class P>
struct BlockWeights {
    P norm1_weight;       // [C], whole
    P norm1_bias;         // [C], whole
    P norm2_weight;       // [C], whole
    P norm2_bias;         // [C], whole
    P projection_bias;    // [C], whole
    P down_bias;          // [C], whole
    P qkv_weight;         // [3 C, C], rows split
    P qkv_bias;           // [3 C], split
    P projection_weight;  // [C, C], columns split
    P up_weight;          // [4 C, C], rows split
    P up_bias;            // [4 C], split
    P down_weight;        // [C, 4 C], columns split
};

/// Token and position embedding.
template <class P>
struct EmbeddingWeights {
    P wte;  // [rows of the vocabulary, C], rows split
    P wpe;  // [sequence, C], whole
};

/// The final norm, and the matrix that makes logits: the token embedding where the head is tied.
template <class P>
struct HeadWeights {
    P norm_weight;  // [C], whole
    P norm_bias;    // [C], whole
    P logits;       // as wte
};

/// Gradients without those of what every tp rank holds whole: for a rank whose peer adds them.
template <class P>
BlockWeights<P> without_whole(BlockWeights<P> d) {
    d.norm1_weight = d.norm1_bias = d.norm2_weight = d.norm2_bias = d.projection_bias = d.down_bias = nullptr;
    return d;
}
template <class P>
EmbeddingWeights<P> without_whole(EmbeddingWeights<P> d) {
    d.wpe = nullptr;
    return d;
}
template <class P>
HeadWeights<P> without_whole(HeadWeights<P> d) {
    d.norm_weight = d.norm_bias = nullptr;
    return d;
}

}  // namespace train_gpt
