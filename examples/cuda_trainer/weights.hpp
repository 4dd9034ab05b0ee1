// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuda_trainer {

/// Device pointers to parameters, or to their gradients. Matrices are row-major, [outputs, inputs].
template <class T>
struct EmbeddingWeights {
    T* table;  ///< [vocabulary, embedding]
    T* projection;
    T* bias;

    EmbeddingWeights<const T> read_only() const { return {table, projection, bias}; }
};

template <class T>
struct BlockWeights {
    T* expand;
    T* expand_bias;
    T* contract;
    T* contract_bias;

    BlockWeights<const T> read_only() const { return {expand, expand_bias, contract, contract_bias}; }
};

template <class T>
struct HeadWeights {
    T* logits;
    T* bias;

    HeadWeights<const T> read_only() const { return {logits, bias}; }
};

}  // namespace cuda_trainer
