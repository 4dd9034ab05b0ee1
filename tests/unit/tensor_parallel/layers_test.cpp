// SPDX-License-Identifier: Apache-2.0
// The communication of layers that tp splits: an embedding, a column- and a row-parallel layer behind each other give
// what the whole layers give on one rank, forward and backward, with and without sequence parallelism.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/tensor_parallel/embedding.hpp>
#include <shardkit/tensor_parallel/tokens.hpp>

#include "largest_difference.hpp"
#include "unit/backend/host/enqueued_kernels.hpp"

namespace sk = shardkit;

namespace layers_test {

using sk::tp::SequenceParallel;

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
using Values = std::vector<double>;

constexpr std::size_t tokens = 24;
constexpr std::size_t width = 5;
constexpr std::size_t hidden = 12;
constexpr std::size_t vocabulary = 10;

double number(std::size_t seed, std::size_t i) { return std::sin(static_cast<double>(seed * 101 + i * 13 + 1)); }
Values numbers(std::size_t seed, std::size_t count) {
    Values values(count);
    for (std::size_t i = 0; i < count; ++i) { values[i] = number(seed, i); }
    return values;
}
std::vector<std::uint16_t> text() {
    std::vector<std::uint16_t> ids(tokens);
    for (std::size_t t = 0; t < tokens; ++t) { ids[t] = static_cast<std::uint16_t>(t * t % 7); }  // some come twice
    return ids;
}

/// y [n, out] = x [n, in] w^T, w [out, in].
Values forward(std::span<const double> x, std::span<const double> w, std::size_t in) {
    const std::size_t n = x.size() / in;
    const std::size_t out = w.size() / in;
    Values y(n * out);
    for (std::size_t t = 0; t < n; ++t) {
        for (std::size_t o = 0; o < out; ++o) {
            for (std::size_t i = 0; i < in; ++i) { y[t * out + o] += x[t * in + i] * w[o * in + i]; }
        }
    }
    return y;
}
/// dx [n, in] = dy w.
Values backward(std::span<const double> dy, std::span<const double> w, std::size_t in) {
    const std::size_t out = w.size() / in;
    const std::size_t n = dy.size() / out;
    Values dx(n * in);
    for (std::size_t t = 0; t < n; ++t) {
        for (std::size_t o = 0; o < out; ++o) {
            for (std::size_t i = 0; i < in; ++i) { dx[t * in + i] += dy[t * out + o] * w[o * in + i]; }
        }
    }
    return dx;
}
/// dw [out, in] = dy^T x.
Values weight_gradient(std::span<const double> dy, std::span<const double> x, std::size_t in) {
    const std::size_t n = x.size() / in;
    const std::size_t out = dy.size() / n;
    Values dw(out * in);
    for (std::size_t t = 0; t < n; ++t) {
        for (std::size_t o = 0; o < out; ++o) {
            for (std::size_t i = 0; i < in; ++i) { dw[o * in + i] += dy[t * out + o] * x[t * in + i]; }
        }
    }
    return dw;
}

/// Columns [first, first + count) of a row-major matrix.
Values columns(const Values& matrix, std::size_t row, std::size_t first, std::size_t count) {
    Values part;
    for (std::size_t r = 0; r < matrix.size() / row; ++r) {
        for (std::size_t c = 0; c < count; ++c) { part.push_back(matrix[r * row + first + c]); }
    }
    return part;
}
Values piece(const Values& all, std::size_t parts, std::size_t index) {
    const auto size = static_cast<std::ptrdiff_t>(all.size() / parts);
    const auto begin = all.begin() + size * static_cast<std::ptrdiff_t>(index);
    return {begin, begin + size};
}

struct Model {
    Values embedding = numbers(1, vocabulary* width);
    Values up = numbers(2, hidden* width);    // [hidden, width]
    Values down = numbers(3, width* hidden);  // [width, hidden]
    Values d_output = numbers(4, tokens* width);
    Values input, inner, output, d_inner, d_input, d_up, d_down, d_embedding;

    Model() {
        const auto ids = text();
        for (std::size_t t = 0; t < tokens; ++t) {
            for (std::size_t c = 0; c < width; ++c) { input.push_back(embedding[ids[t] * width + c]); }
        }
        inner = forward(input, up, width);
        output = forward(inner, down, hidden);
        d_inner = backward(d_output, down, hidden);
        d_input = backward(d_inner, up, width);
        d_down = weight_gradient(d_output, inner, hidden);
        d_up = weight_gradient(d_inner, input, width);
        d_embedding.resize(embedding.size());
        for (std::size_t t = 0; t < tokens; ++t) {
            for (std::size_t c = 0; c < width; ++c) { d_embedding[ids[t] * width + c] += d_input[t * width + c]; }
        }
    }
};

template <class Rank>
void check(Rank& rank, SequenceParallel sequence_parallel) {
    using Kernels = sk::host::AnyKernels;
    static const Model whole;
    const auto comm = rank.template sub_mesh<sk::Axes<sk::Tp>>();
    const auto stream = rank.compute_stream();
    const std::size_t tp = comm.size();
    const std::size_t index = comm.rank();
    const bool split = sequence_parallel == SequenceParallel::on;
    const auto mine = [&](const Values& all) { return split ? piece(all, tp, index) : all; };
    const auto ids = text();
    const std::span<const std::uint16_t> targets(ids);

    // Forward: embedding, up, down.
    const auto part = sk::tp::VocabularyPart::of(vocabulary, 12, tp, index);
    Values padded = whole.embedding;
    padded.resize(12 * width, 99);  // padding that no token may read
    const Values rows = piece(padded, tp, index);
    Values embedded(tokens * width);
    sk::tp::embed<Kernels>(stream, targets, part, std::span<const double>(rows), std::span(embedded));
    Values summed(split ? tokens / tp * width : 0);
    const auto input = sk::tp::sum_tokens(comm, sequence_parallel, std::span(embedded), std::span(summed), stream);
    CHECK(largest_difference(input, mine(whole.input)) <= 1e-14);

    Values gathered(split ? tokens * width : 0);
    const auto x =
        sk::tp::gather_tokens(comm, sequence_parallel, std::span<const double>(input), std::span(gathered), stream);
    CHECK(largest_difference(x, whole.input) <= 1e-14);
    const Values up = piece(whole.up, tp, index);
    const Values down = columns(whole.down, hidden, hidden / tp * index, hidden / tp);
    const Values inner = forward(x, up, width);
    CHECK(largest_difference(inner, columns(whole.inner, hidden, hidden / tp * index, hidden / tp)) <= 1e-13);
    Values partial = forward(inner, down, hidden / tp);
    Values part_of_output(split ? tokens / tp * width : 0);
    const auto output =
        sk::tp::sum_tokens(comm, sequence_parallel, std::span(partial), std::span(part_of_output), stream);
    CHECK(largest_difference(output, mine(whole.output)) <= 1e-13);

    // Backward.
    const Values d_output = mine(whole.d_output);
    Values d_gathered(split ? tokens * width : 0);
    const auto dy = sk::tp::gather_tokens(comm, sequence_parallel, std::span<const double>(d_output),
                                          std::span(d_gathered), stream);
    const Values d_inner = backward(dy, down, hidden / tp);
    CHECK(largest_difference(weight_gradient(dy, inner, hidden / tp),
                             columns(whole.d_down, hidden, hidden / tp * index, hidden / tp)) <= 1e-12);
    CHECK(largest_difference(weight_gradient(d_inner, x, width), piece(whole.d_up, tp, index)) <= 1e-12);
    Values d_partial = backward(d_inner, up, width);
    Values d_part(split ? tokens / tp * width : 0);
    const auto d_input = sk::tp::sum_tokens(comm, sequence_parallel, std::span(d_partial), std::span(d_part), stream);
    CHECK(largest_difference(d_input, mine(whole.d_input)) <= 1e-13);

    Values d_all(split ? tokens * width : 0);
    const auto d_embedded =
        sk::tp::gather_tokens(comm, sequence_parallel, std::span<const double>(d_input), std::span(d_all), stream);
    Values d_rows(rows.size(), 0.5);  // gradients are added
    sk::tp::embed_backward<Kernels>(stream, targets, part, d_embedded, std::span(d_rows));
    for (double& each : d_rows) { each -= 0.5; }
    Values d_padded = whole.d_embedding;
    d_padded.resize(12 * width);
    CHECK(largest_difference(d_rows, piece(d_padded, tp, index)) <= 1e-13);
}

}  // namespace

TEST_CASE("tp: layers that are split give what whole ones give, forward and backward") {
    for (const std::size_t tp : {1U, 2U, 3U, 4U}) {
        for (const auto sequence_parallel : {SequenceParallel::off, SequenceParallel::on}) {
            CAPTURE(tp);
            CAPTURE(static_cast<int>(sequence_parallel));
            sk::threads::run(Mesh(2, tp, 1), [&](auto& rank) { check(rank, sequence_parallel); });
        }
    }
}

TEST_CASE("tp: layers move the same bytes with and without sequence parallelism") {
    for (const auto sequence_parallel : {SequenceParallel::off, SequenceParallel::on}) {
        std::vector<std::uint64_t> moved(4);
        sk::threads::run(Mesh(1, 4, 1), [&](auto& rank) {
            rank.traffic().clear();
            check(rank, sequence_parallel);
            for (const auto& entry : rank.traffic().entries()) { moved[rank.rank()] += entry.moved.value; }
        });
        // Three all-reduces, or three all-gathers and three reduce-scatters, of tokens * width numbers of 8 bytes.
        CHECK(std::accumulate(moved.begin(), moved.end(), std::uint64_t{0}) == 3 * 2 * 3 * tokens * width * 8);
    }
}

namespace {

/// Runs a launch's indices in another order than theirs, as a GPU may.
struct BackwardsKernels {
    static constexpr std::size_t row_workers = 32;
    static inline std::uint64_t launched = 0;
    template <class Work>
    static void for_each_index(sk::Stream /*stream*/, std::uint64_t n, const Work& work) {
        launched = n;
        for (std::uint64_t i = n; i-- > 0;) { work(i); }
    }
};

template <class T>
void check_embedding_backward(std::size_t size, std::size_t row, std::size_t count) {
    using A = sk::Arithmetic<T>;
    const sk::tp::VocabularyPart part{40 + size, 40, size};
    std::vector<int> ids(count);
    std::vector<A> d_output(count * row);
    std::uint64_t state = 1;
    for (int& id : ids) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        // Some are frequent, and some are another rank's.
        id = static_cast<int>((state >> 40U) % 3 == 0 ? 40 + size / 2 : (state >> 33U) % (40 + size));
    }
    for (std::size_t i = 0; i < d_output.size(); ++i) {
        d_output[i] = static_cast<A>(std::sin(static_cast<double>(i * i % 1009)));
    }
    std::vector<T> expected(size * row, static_cast<T>(A{0.5}));
    for (std::size_t t = 0; t < count; ++t) {
        const auto id = static_cast<std::size_t>(ids[t]);
        if (id < part.first) { continue; }
        for (std::size_t c = 0; c < row; ++c) {
            T& sum = expected[(id - part.first) * row + c];
            sum = static_cast<T>(static_cast<A>(sum) + d_output[t * row + c]);
        }
    }
    const auto bits = [](const std::vector<T>& values) {
        const auto* const bytes = reinterpret_cast<const unsigned char*>(values.data());
        return std::vector<unsigned char>(bytes, bytes + values.size() * sizeof(T));
    };
    std::vector<T> rows(size * row, static_cast<T>(A{0.5}));
    sk::tp::embed_backward<BackwardsKernels>(sk::Stream{}, std::span<const int>(ids), part,
                                             std::span<const A>(d_output), std::span(rows));
    CHECK(bits(rows) == bits(expected));
    CHECK(BackwardsKernels::launched == std::bit_floor(std::min<std::size_t>(size, 4096)) * 32);
    std::vector<T> on_host(size * row, static_cast<T>(A{0.5}));
    sk::tp::embed_backward<sk::test::EnqueuedKernels<sk::Stream>>(sk::Stream{}, std::span<const int>(ids), part,
                                                                  std::span<const A>(d_output), std::span(on_host));
    CHECK(bits(on_host) == bits(expected));
}

}  // namespace

TEST_CASE("tp: an embedding's gradient is added by many workers with the bits of one, whatever their order") {
    for (const std::size_t size : {1U, 7U, 100U, 5000U}) {
        for (const std::size_t embedding_width : {1U, 33U, 64U}) {
            CAPTURE(size);
            CAPTURE(embedding_width);
            check_embedding_backward<float>(size, embedding_width, 40);
            if (size == 100) {
                check_embedding_backward<sk::bf16>(size, embedding_width, 300);
                check_embedding_backward<double>(size, embedding_width, 0);
            }
        }
    }
}

TEST_CASE("tp: sizes that disagree are refused") {
    sk::threads::run(Mesh(1, 2, 1), [](auto& rank) {
        using Kernels = sk::host::AnyKernels;
        const auto stream = rank.compute_stream();
        const auto comm = rank.template sub_mesh<sk::Axes<sk::Tp>>();
        const auto part = sk::tp::VocabularyPart::of(4, 4, 2, comm.rank());
        const std::vector<std::uint8_t> ids(3);
        const Values weight(2 * width);
        Values output(3 * width + 1);
        CHECK_THROWS_WITH_AS(sk::tp::embed<Kernels>(stream, std::span<const std::uint8_t>(ids), part,
                                                    std::span<const double>(weight), std::span(output)),
                             doctest::Contains("tp::embed: 10 weights of 2 rows and 16 outputs of 3 tokens"),
                             std::invalid_argument);
        Values d_weight(2 * width + 1);
        CHECK_THROWS_AS(
            sk::tp::embed_backward<Kernels>(stream, std::span<const std::uint8_t>(ids), part,
                                            std::span<const double>(output).first(15), std::span(d_weight)),
            std::invalid_argument);
        Values sum(4);
        CHECK_THROWS_AS(static_cast<void>(sk::tp::sum_tokens(comm, SequenceParallel::on, std::span(output),
                                                             std::span(sum), stream)),
                        std::invalid_argument);
    });
}

}  // namespace layers_test
