// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>

#include <shardkit/context_parallel/causal_chunks.hpp>

#include "convert.hpp"
#include "exponential.hpp"
#include "matrix.hpp"
#include "place.hpp"
#include "rank_pass.hpp"

namespace train_gpt {

/// A row of scores becomes its part of the softmax over everything seen so far, and log_sum_exp that of all of it.
/// Returns the factor for what was summed with earlier parts.
template <class S, class A = Arithmetic<S>, class Row = WholeRow>
constexpr A merge_softmax(std::size_t seen, S* scores, A& log_sum_exp, const Row& row = {}) {
    const auto score = [&](std::size_t j) { return static_cast<A>(scores[j]); };
    const A highest = row.max(seen, score);
    row.each(seen, [&](std::size_t j) { scores[j] = static_cast<S>(exponential(score(j) - highest)); });
    const A part = highest + std::log(row.template sum<A>(seen, score));
    const A before = log_sum_exp;
    const A most = before < part ? part : before;
    const A all = most + std::log(std::exp(before - most) + std::exp(part - most));
    row.once([&] { log_sum_exp = all; });
    const A factor = std::exp(highest - all);
    row.each(seen, [&](std::size_t j) { scores[j] = static_cast<S>(score(j) * factor); });
    return std::exp(before - all);
}

/// Rows of queries, [heads, chunk]: where the values of one lie.
struct QueryRows {
    AttentionShape shape;
    std::size_t chunk;
    bool diagonal;  // a query sees the keys of its chunk up to its own

    constexpr std::size_t seen(std::size_t r) const { return diagonal ? r % chunk + 1 : chunk; }
    constexpr std::size_t kept(std::size_t r) const { return r / chunk * shape.batch.sequence + r % chunk; }
    constexpr std::size_t output(std::size_t r) const {
        return r / chunk * shape.head_width + r % chunk * shape.width();
    }
};

/// As rows: a query's scores become probabilities, and what was summed for it is scaled to them.
template <class S>
struct MergeScores {
    using A = Arithmetic<S>;

    QueryRows of;
    S* scores;  // [heads, chunk, chunk]
    A* log_sum_exp;
    S* output;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t r) const {
        S* const of_row = scores + r * of.chunk;
        const std::size_t seen = of.seen(r);
        const A kept = merge_softmax(seen, of_row, log_sum_exp[of.kept(r)], row);
        row.each(of.chunk - seen, [&](std::size_t j) { of_row[seen + j] = S{}; });
        S* const sum = output + of.output(r);
        row.each(of.shape.head_width, [&](std::size_t c) { sum[c] = static_cast<S>(static_cast<A>(sum[c]) * kept); });
    }
};
/// As rows: a query's scores become probabilities again, and the gradients at them those at the scores.
template <class S>
struct ScoresBackward {
    using A = Arithmetic<S>;

    QueryRows of;
    S* scores;    // [heads, chunk, chunk]
    S* d_scores;  // [heads, chunk, chunk]
    const A* log_sum_exp;
    const S* output;
    const S* d_output;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t r) const {
        const S* const o = output + of.output(r);
        const S* const d_o = d_output + of.output(r);
        const A dot = row.template sum<A>(
            of.shape.head_width, [&](std::size_t c) { return static_cast<A>(o[c]) * static_cast<A>(d_o[c]); });
        S* const p = scores + r * of.chunk;
        S* const d_p = d_scores + r * of.chunk;
        const std::size_t seen = of.seen(r);
        const A total = log_sum_exp[of.kept(r)];
        row.each(seen, [&](std::size_t j) {
            const A probability = exponential(static_cast<A>(p[j]) - total);
            p[j] = static_cast<S>(probability);
            d_p[j] = static_cast<S>(probability * (static_cast<A>(d_p[j]) - dot));
        });
        row.each(of.chunk - seen, [&](std::size_t j) {
            p[seen + j] = S{};
            d_p[seen + j] = S{};
        });
    }
};
/// As rows [batch, heads, sequence]: copies a row of keys and values from where a token's values lie to a block, or
/// back.
template <class S, class B>
struct CopyKeysValues {
    AttentionShape shape;
    S* packed;
    B* keys_values;
    bool back;

    template <class Row>
    constexpr void operator()(const Row& row, std::size_t r) const {
        const std::size_t head = r / shape.batch.sequence;
        const std::size_t i = r % shape.batch.sequence;
        S* const token = packed + shape.packed_offset(head / shape.heads, head % shape.heads) + i * shape.packed() +
                         shape.head_width;
        B* const key = keys_values + r * shape.head_width;
        const std::size_t half = shape.keys_values() / 2;
        row.each(shape.head_width, [&](std::size_t c) {
            if (back) {
                token[c] = static_cast<S>(key[c]);
                token[shape.head_width + c] = static_cast<S>(key[half + c]);
            } else {
                key[c] = static_cast<B>(token[c]);
                key[half + c] = static_cast<B>(token[shape.head_width + c]);
            }
        });
    }
};

/// One rank's causal attention. Each query sees the keys of all cp ranks at its position and before; products of
/// chunks that no query may see are not made. The probabilities of a block are made when it arrives, forward and
/// backward, and never kept.
/// Source: Dao et al., arXiv 2205.14135; Liu et al., arXiv 2310.01889
template <class T, class Place>
class CausalAttention {
    using S = typename Place::template Storage<T>;
    using A = Arithmetic<S>;

  public:
    explicit CausalAttention(const RankPass<T, Place>& pass) : pass_(pass) {}

    /// Shapes: qkv [tokens, 3 * width]; output [tokens, width]; log_sum_exp [batch, heads, sequence].
    void forward(S* qkv, S* output, A* log_sum_exp) const {
        [[maybe_unused]] const typename Place::CountsAttention counts;
        pack(qkv);
        place_.each(shape_.batch.tokens() * shape_.width(), Fill<S>{output, S{}});
        place_.each(shape_.rows(), Fill<A>{log_sum_exp, -std::numeric_limits<A>::infinity()});
        const auto attend = [&](std::size_t source, const S* block, A*) {
            for_each_pair(source, [&](const Pair& pair) {
                const auto p = scores(scratch_.scores);
                const auto out = outputs(output, pair);
                multiply(queries(qkv, pair), transposed(keys(block, pair)), p, Into::overwrite, scale());
                place_.rows(heads_ * p.rows, MergeScores<S>{rows(pair), scratch_.scores, log_sum_exp + pair.row,
                                                            output + pair.output});
                multiply(p, values(block, pair), out, Into::add);
            });
        };
        pass_.links.each_block({scratch_.keys_values, shape_.keys_values()}, std::ref(attend));
    }

    /// Overwrites d_qkv with the gradient at the packed input.
    /// Shapes: as forward; d_output [tokens, width], d_qkv [tokens, 3 * width].
    void backward(S* qkv, const S* output, const A* log_sum_exp, const S* d_output, S* d_qkv) const {
        [[maybe_unused]] const typename Place::CountsAttention counts;
        pack(qkv);
        place_.each(shape_.keys_values(), Fill<A>{scratch_.d_keys_values, A{0}});
        place_.each(shape_.batch.tokens() * shape_.packed(), Fill<S>{d_qkv, S{}});
        const auto attend = [&](std::size_t source, const S* block, A* d_block) {
            for_each_pair(source, [&](const Pair& pair) {
                const auto p = scores(scratch_.scores);
                const auto d_p = scores(scratch_.d_scores);
                const auto upstream = outputs(d_output, pair);
                multiply(queries(qkv, pair), transposed(keys(block, pair)), p, Into::overwrite, scale());
                multiply(upstream, transposed(values(block, pair)), d_p, Into::overwrite);
                place_.rows(heads_ * p.rows,
                            ScoresBackward<S>{rows(pair), scratch_.scores, scratch_.d_scores, log_sum_exp + pair.row,
                                              output + pair.output, d_output + pair.output});
                multiply(transposed(p), upstream, values(d_block, pair), Into::add);
                multiply(d_p, keys(block, pair), queries(d_qkv, pair), Into::add, scale());
                multiply(transposed(d_p), queries(qkv, pair), keys(d_block, pair), Into::add, scale());
            });
        };
        pass_.links.each_block_with_gradients({scratch_.keys_values, shape_.keys_values()},
                                              {scratch_.d_keys_values, shape_.keys_values()}, std::ref(attend));
        place_.rows(shape_.rows(), CopyKeysValues<S, A>{shape_, d_qkv, scratch_.d_keys_values, true});
    }

  private:
    /// A chunk of queries and one of keys that they see, of one sequence and the first of some heads.
    struct Pair {
        std::size_t query;   // offset of the first row in the packed values
        std::size_t output;  // in the outputs
        std::size_t row;     // in what is kept for each query
        std::size_t key;     // in a block
        bool diagonal;
    };
    std::size_t half() const { return shape_.keys_values() / 2; }
    A scale() const { return A(1) / std::sqrt(static_cast<A>(shape_.head_width)); }

    template <class F>
    void for_each_pair(std::size_t source, F f) const {
        const auto keys = pass_.chunks(source);
        const std::size_t n = queries_.chunk();
        for (std::size_t b = 0; b < shape_.batch.batch; ++b) {
            for (std::size_t h = 0; h < shape_.heads; h += heads_) {
                for (std::size_t q = 0; q < queries_.count(); ++q) {
                    for (std::size_t k = 0; k < keys.count(); ++k) {
                        if (keys.number(k) > queries_.number(q)) { continue; }
                        f(Pair{shape_.packed_offset(b, h) + q * n * shape_.packed(),
                               shape_.output_offset(b, h) + q * n * shape_.width(), shape_.row_offset(b, h) + q * n,
                               shape_.key_offset(b, h) + k * n * shape_.head_width,
                               keys.number(k) == queries_.number(q)});
                    }
                }
            }
        }
    }
    void pack(S* qkv) const {
        place_.rows(shape_.rows(), CopyKeysValues<S, S>{shape_, qkv, scratch_.keys_values, false});
    }
    template <class R>
    void multiply(Matrix<const S> a, Matrix<const S> b, Matrix<R> result, Into into, A scale = A{1}) const {
        place_.template multiply<S>(a, b, result, into, scale, heads_);
    }

    QueryRows rows(const Pair& pair) const { return {shape_, queries_.chunk(), pair.diagonal}; }
    // Of the first of some heads; the others' are next.
    template <class P>
    Matrix<P> queries(P* packed, const Pair& pair) const {
        return {packed + pair.query, queries_.chunk(), shape_.head_width, shape_.packed(), 3 * shape_.head_width};
    }
    template <class P>
    Matrix<P> outputs(P* all, const Pair& pair) const {
        return {all + pair.output, queries_.chunk(), shape_.head_width, shape_.width(), shape_.head_width};
    }
    template <class P>
    Matrix<P> keys(P* block, const Pair& pair) const {
        return {block + pair.key, queries_.chunk(), shape_.head_width, shape_.head_width,
                shape_.batch.sequence * shape_.head_width};
    }
    template <class P>
    Matrix<P> values(P* block, const Pair& pair) const {
        return keys(block + half(), pair);
    }
    Matrix<S> scores(S* memory) const { return matrix(memory, queries_.chunk(), queries_.chunk()); }

    const RankPass<T, Place>& pass_;
    const Scratch<T, Place>& scratch_ = pass_.scratch;
    const Place& place_ = pass_.place;
    AttentionShape shape_ = pass_.attention();
    shardkit::cp::CausalChunks queries_ = pass_.chunks(pass_.split.cp_index);
    std::size_t heads_ = Place::heads_at_once(shape_.heads);
};

}  // namespace train_gpt
