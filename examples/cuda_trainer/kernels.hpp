// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "shape.hpp"

namespace cuda_trainer {

/// The training data on the device: sample s is a place in the text that the seed and s alone decide, so that ranks
/// and microbatches share out the same samples.
struct Samples {
    const std::uint8_t* text;
    std::size_t places;  ///< where a context and the byte after it fit
    std::uint64_t seed;

    constexpr const std::uint8_t* begin(std::uint64_t s) const { return text + mix(mix(seed) + s) % places; }
};

/// Samples behind each other on the device: each the bytes of a context and the one that follows.
struct Batch {
    const std::uint8_t* bytes;
    std::size_t context;
    std::size_t size;

    constexpr const std::uint8_t* begin(std::size_t b) const { return bytes + b * (context + 1); }
    constexpr std::size_t token(std::size_t b, std::size_t position) const { return begin(b)[position]; }
    constexpr std::size_t target(std::size_t b) const { return begin(b)[context]; }
};

}  // namespace cuda_trainer

/// The kernels' arithmetic: what one thread does. Each element is written by one thread and sums have one order, so
/// that a run repeats bit by bit.
namespace cuda_trainer::kernels {

template <class T>
constexpr T gelu_slope_of_tanh = static_cast<T>(0.79788456080286536);  // sqrt(2 / pi)
template <class T>
constexpr T gelu_cubic = static_cast<T>(0.044715);

/// Source:  Hendrycks and Gimpel, arXiv 1606.08415, the approximation with tanh
template <class T>
constexpr T gelu(T x) {
    return x / 2 * (1 + std::tanh(gelu_slope_of_tanh<T> * (x + gelu_cubic<T> * x * x * x)));
}
template <class T>
constexpr T gelu_slope(T x) {
    const T inner = gelu_slope_of_tanh<T> * (1 + 3 * gelu_cubic<T> * x * x);
    const T t = std::tanh(gelu_slope_of_tanh<T> * (x + gelu_cubic<T> * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * inner;
}

/// A byte of a rank's batches of one step: `size` samples from `first` on, then from `first + stride` on, and so
/// forth.
struct CopySamples {
    Samples samples;
    std::uint64_t first;
    std::size_t stride;
    std::size_t size;
    std::size_t bytes;  ///< of a sample
    std::uint8_t* to;

    constexpr void operator()(std::size_t i) const {
        const std::size_t b = i / bytes;
        to[i] = samples.begin(first + b / size * stride + b % size)[i % bytes];
    }
};

/// An element of the concatenated embeddings [batch, context * embedding].
template <class T>
struct Embed {
    Batch batch;
    std::size_t embedding;
    const T* table;
    T* to;

    constexpr void operator()(std::size_t i) const {
        const std::size_t inputs = batch.context * embedding;
        const std::size_t token = batch.token(i / inputs, i % inputs / embedding);
        to[i] = table[token * embedding + i % embedding];
    }
};

/// An element of the table's gradient.
template <class T>
struct EmbedBackward {
    Batch batch;
    std::size_t embedding;
    const T* d_embedded;
    T* d_table;

    constexpr void operator()(std::size_t i) const {
        T sum = 0;
        for (std::size_t b = 0; b < batch.size; ++b) {
            const std::uint8_t* const tokens = batch.begin(b);
            for (std::size_t position = 0; position < batch.context; ++position) {
                if (tokens[position] == i / embedding) {
                    sum += d_embedded[(b * batch.context + position) * embedding + i % embedding];
                }
            }
        }
        d_table[i] += sum;
    }
};

template <class T>
struct AddBias {
    const T* bias;
    std::size_t columns;
    T* to;

    constexpr void operator()(std::size_t i) const { to[i] += bias[i % columns]; }
};

/// A column of a bias's gradient.
template <class T>
struct BiasBackward {
    const T* d_output;
    std::size_t rows;
    std::size_t columns;
    T* d_bias;

    constexpr void operator()(std::size_t column) const {
        T sum = 0;
        for (std::size_t row = 0; row < rows; ++row) { sum += d_output[row * columns + column]; }
        d_bias[column] += sum;
    }
};

/// Adds the bias to `before`, which the backward pass needs, and applies the GELU.
template <class T>
struct BiasGelu {
    const T* bias;
    std::size_t columns;
    T* before;
    T* after;

    constexpr void operator()(std::size_t i) const {
        before[i] += bias[i % columns];
        after[i] = gelu(before[i]);
    }
};

template <class T>
struct GeluBackward {
    const T* before;
    T* gradient;  ///< of the output, then of the input

    constexpr void operator()(std::size_t i) const { gradient[i] *= gelu_slope(before[i]); }
};

/// The end of a block: to = to + bias + input.
template <class T>
struct AddBiasAndInput {
    const T* bias;
    std::size_t columns;
    const T* input;
    T* to;

    constexpr void operator()(std::size_t i) const { to[i] += bias[i % columns] + input[i]; }
};

/// One sample's loss, and its logits become their gradient. `weight`: of a sample in the mean.
template <class T>
struct SoftmaxCrossEntropy {
    Batch batch;
    std::size_t columns;
    T weight;
    T* logits;
    T* loss;

    constexpr void operator()(std::size_t b) const {
        T* const row = logits + b * columns;
        T greatest = row[0];
        for (std::size_t c = 1; c < columns; ++c) { greatest = row[c] > greatest ? row[c] : greatest; }
        T sum = 0;
        for (std::size_t c = 0; c < columns; ++c) { sum += std::exp(row[c] - greatest); }
        const std::size_t target = batch.target(b);
        loss[b] = std::log(sum) + greatest - row[target];
        for (std::size_t c = 0; c < columns; ++c) {
            row[c] = weight * (std::exp(row[c] - greatest) / sum - (c == target ? 1 : 0));
        }
    }
};

/// Adds the mean of the samples' losses; run once.
template <class T>
struct AddLoss {
    const T* loss;
    std::size_t rows;
    T weight;
    T* total;

    constexpr void operator()(std::size_t) const {
        T sum = 0;
        for (std::size_t b = 0; b < rows; ++b) { sum += loss[b]; }
        *total += weight * sum;
    }
};

}  // namespace cuda_trainer::kernels
