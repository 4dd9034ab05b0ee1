// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace train_gpt {

/// The twelve tensors of one transformer block, as parameters (P = const T*) or as their gradients (P = T*).
/// Matrices are stored [outputs, inputs]; C is the width. The rows of the QKV weight lie head by head:
/// [head][query | key | value][C / heads], see AttentionShape.
template <class P>
struct BlockWeights {
    P norm1_weight;       // [C]
    P norm1_bias;         // [C]
    P qkv_weight;         // [3 C, C]
    P qkv_bias;           // [3 C]
    P projection_weight;  // [C, C]
    P projection_bias;    // [C]
    P norm2_weight;       // [C]
    P norm2_bias;         // [C]
    P up_weight;          // [4 C, C]
    P up_bias;            // [4 C]
    P down_weight;        // [C, 4 C]
    P down_bias;          // [C]
};

/// Token and position embedding.
template <class P>
struct EmbeddingWeights {
    P wte;  // [256, C]
    P wpe;  // [sequence, C]
};

/// The final norm, and the matrix that makes logits: the token embedding where the head is tied.
template <class P>
struct HeadWeights {
    P norm_weight;  // [C]
    P norm_bias;    // [C]
    P logits;       // [256, C]
};

}  // namespace train_gpt
