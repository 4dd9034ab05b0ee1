// SPDX-License-Identifier: Apache-2.0
// Attention over a sequence that is split over cp against plain attention over the whole one, forward and backward.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/context_parallel/attention.hpp>
#include <shardkit/context_parallel/gather_exchange.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "largest_difference.hpp"

namespace sk = shardkit;

namespace attention_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
using Values = std::vector<double>;

struct Case {
    std::size_t batch;
    std::size_t heads;
    std::size_t sequence;
    std::size_t head_width;
};

double number(std::size_t seed, std::size_t i) { return 2 * std::sin(static_cast<double>(seed * 977 + i * 29 + 1)); }

/// Index of (b, h, position, c) in a whole tensor.
std::size_t at(const Case& c, std::size_t bh, std::size_t position, std::size_t column) {
    return (bh * c.sequence + position) * c.head_width + column;
}

struct Whole {
    Values q, k, v, d_out, out, lse, dq, dk, dv;

    explicit Whole(const Case& c) {
        const std::size_t numel = c.batch * c.heads * c.sequence * c.head_width;
        for (std::size_t i = 0; i < numel; ++i) {
            q.push_back(number(1, i));
            k.push_back(number(2, i));
            v.push_back(number(3, i));
            d_out.push_back(number(4, i));
        }
        out.resize(numel);
        dq.resize(numel);
        dk.resize(numel);
        dv.resize(numel);
        const double scale = 1 / std::sqrt(static_cast<double>(c.head_width));
        for (std::size_t bh = 0; bh < c.batch * c.heads; ++bh) {
            for (std::size_t i = 0; i < c.sequence; ++i) {
                Values p(i + 1);
                double sum = 0;
                for (std::size_t j = 0; j <= i; ++j) {
                    for (std::size_t x = 0; x < c.head_width; ++x) {
                        p[j] += q[at(c, bh, i, x)] * k[at(c, bh, j, x)];
                    }
                    p[j] = std::exp(scale * p[j]);
                    sum += p[j];
                }
                lse.push_back(std::log(sum));
                Values dp(i + 1);
                double dot = 0;
                for (std::size_t j = 0; j <= i; ++j) {
                    p[j] /= sum;
                    for (std::size_t x = 0; x < c.head_width; ++x) {
                        out[at(c, bh, i, x)] += p[j] * v[at(c, bh, j, x)];
                        dv[at(c, bh, j, x)] += p[j] * d_out[at(c, bh, i, x)];
                        dp[j] += d_out[at(c, bh, i, x)] * v[at(c, bh, j, x)];
                    }
                    dot += p[j] * dp[j];
                }
                for (std::size_t j = 0; j <= i; ++j) {
                    const double d_score = scale * p[j] * (dp[j] - dot);
                    for (std::size_t x = 0; x < c.head_width; ++x) {
                        dq[at(c, bh, i, x)] += d_score * k[at(c, bh, j, x)];
                        dk[at(c, bh, j, x)] += d_score * q[at(c, bh, i, x)];
                    }
                }
            }
        }
    }
};

template <template <class> class Exchange>
void check(const Case& c, std::size_t cp) {
    CAPTURE(c.sequence);
    CAPTURE(cp);
    const Whole whole(c);
    sk::threads::run(Mesh(1, 2, cp), [&](auto& rank) {
        const auto comm = rank.template sub_mesh<sk::Axes<sk::Cp>>();
        const auto chunks = sk::cp::CausalChunks::of(c.sequence, cp, comm.rank());
        const sk::cp::AttentionShape shape{c.batch, c.heads, chunks.tokens(), c.head_width};
        /// This rank's part of a whole tensor.
        const auto part = [&](const Values& all) {
            Values mine;
            for (std::size_t bh = 0; bh < c.batch * c.heads; ++bh) {
                for (std::size_t i = 0; i < shape.tokens; ++i) {
                    for (std::size_t x = 0; x < c.head_width; ++x) {
                        mine.push_back(all[at(c, bh, chunks.position(i), x)]);
                    }
                }
            }
            return mine;
        };
        const auto both = [](Values a, const Values& b) {
            a.insert(a.end(), b.begin(), b.end());
            return a;
        };
        sk::cp::Attention<double, Exchange> attention(rank, comm, shape);
        for (const int repetition : {0, 1}) {
            CAPTURE(repetition);
            const Values q = part(whole.q);
            const Values kv = both(part(whole.k), part(whole.v));
            const Values d_out = part(whole.d_out);
            Values out(q.size(), 7);
            Values lse(shape.rows(), 7);
            Values dq(q.size(), 0.5);  // gradients are added
            Values dkv(kv.size(), 0.25);
            attention.forward(q, kv, std::span(out), std::span(lse));
            attention.backward(q, kv, out, lse, d_out, std::span(dq), std::span(dkv));
            double worst = 0;
            const auto compare = [&](const Values& given, const Values& expected, double offset) {
                REQUIRE(given.size() == expected.size());
                for (std::size_t i = 0; i < given.size(); ++i) {
                    worst = larger(worst, std::abs(given[i] - offset - expected[i]));
                }
            };
            compare(out, part(whole.out), 0);
            compare(dq, part(whole.dq), 0.5);
            compare(dkv, both(part(whole.dk), part(whole.dv)), 0.25);
            for (std::size_t row = 0; row < shape.rows(); ++row) {
                const std::size_t position = chunks.position(row % shape.tokens);
                worst = larger(worst, std::abs(lse[row] - whole.lse[row / shape.tokens * c.sequence + position]));
            }
            CHECK(worst <= 1e-12);
        }
    });
}

/// Blocks of fewer elements than the exchange was made for: every rank sees each block once, with its owner's number,
/// and what the ranks add to a block's gradients is added to its owner's.
template <template <class> class Exchange>
void check_smaller_blocks(std::size_t cp) {
    CAPTURE(cp);
    sk::threads::run(Mesh(1, 1, cp), [&](auto& rank) {
        const auto comm = rank.template sub_mesh<sk::Axes<sk::Cp>>();
        Exchange<double> exchange(rank, comm, 10);
        for (const std::size_t size : {6U, 10U, 0U, 1U}) {
            const Values own(size, static_cast<double>(comm.rank()));
            Values d_own(size, 0.5);
            std::set<std::size_t> seen;
            const auto see = [&](std::size_t source, std::span<const double> block) {
                CHECK(block.size() == size);
                for (const double x : block) { CHECK(x == static_cast<double>(source)); }
                CHECK(seen.insert(source).second);
            };
            exchange.each(own, see);
            CHECK(seen.size() == cp);
            seen.clear();
            exchange.each_with_gradients(
                own, std::span(d_own),
                [&](std::size_t source, std::span<const double> block, std::span<double> d_block) {
                    see(source, block);
                    CHECK(d_block.size() == size);
                    for (double& d : d_block) { d += static_cast<double>(100 * (source + 1) + comm.rank()); }
                });
            const double addends = static_cast<double>(100 * (comm.rank() + 1) * cp + cp * (cp - 1) / 2);
            for (const double d : d_own) { CHECK(d == 0.5 + addends); }
        }
        const Values large(11);
        Values d_large(11);
        CHECK_THROWS_WITH_AS(exchange.each(large, [](auto&&...) {}),
                             doctest::Contains("a block of 11 elements, expected at most 10"), std::invalid_argument);
        CHECK_THROWS_WITH_AS(exchange.each_with_gradients(large, std::span(d_large), [](auto&&...) {}),
                             doctest::Contains("a block of 11 elements, expected at most 10"), std::invalid_argument);
    });
}

}  // namespace

TEST_CASE("cp: chunks of all ranks are the sequence, and every rank has the same number of pairs to attend to") {
    for (const std::size_t cp : {1U, 2U, 3U, 4U}) {
        const std::size_t sequence = 24;
        std::set<std::size_t> seen;
        std::set<std::size_t> work;
        for (std::size_t r = 0; r < cp; ++r) {
            const auto chunks = sk::cp::CausalChunks::of(sequence, cp, r);
            CHECK(chunks.tokens() == sequence / cp);
            std::size_t pairs = 0;
            for (std::size_t i = 0; i < chunks.tokens(); ++i) {
                seen.insert(chunks.position(i));
                pairs += chunks.position(i) + 1;
            }
            work.insert(pairs);
        }
        CHECK(seen.size() == sequence);
        CHECK(*seen.rbegin() == sequence - 1);
        CHECK(work.size() == 1);
    }
}

TEST_CASE("cp: attention over a split sequence is that over the whole, in a ring and gathered") {
    for (const std::size_t cp : {1U, 2U, 3U, 4U}) {
        for (const Case c : {Case{2, 3, 24, 5}, Case{1, 1, 2 * cp, 1}, Case{1, 2, 6 * cp, 3}}) {
            check<sk::cp::RingExchange>(c, cp);
            check<sk::cp::GatherExchange>(c, cp);
        }
    }
    // One rank takes any length.
    check<sk::cp::RingExchange>({2, 1, 5, 3}, 1);
    check<sk::cp::GatherExchange>({1, 2, 1, 2}, 1);
}

TEST_CASE("cp: an exchange takes smaller blocks than it was made for, and refuses larger ones by name") {
    for (const std::size_t cp : {1U, 2U, 3U, 4U}) {
        check_smaller_blocks<sk::cp::RingExchange>(cp);
        check_smaller_blocks<sk::cp::GatherExchange>(cp);
    }
}

TEST_CASE("cp: gradients at blocks of bf16 are added in fp32") {
    const auto add = [](auto exchange_of) {
        sk::threads::run(Mesh(1, 1, 3), [&](auto& rank) {
            auto exchange = exchange_of(rank);
            const std::vector<sk::bf16> own(4, sk::bf16(static_cast<float>(rank.rank() + 1)));
            std::vector<float> sums(4, 1.0F);
            exchange.each_with_gradients(
                std::span<const sk::bf16>(own), std::span<float>(sums),
                [&](std::size_t source, std::span<const sk::bf16> block, std::span<float> gradients) {
                    CHECK(static_cast<float>(block[3]) == static_cast<float>(source + 1));
                    // 256 is the first whole number in bf16 that adding 1 does not change.
                    for (float& gradient : gradients) { gradient += rank.rank() == source ? 256.0F : 1.0F; }
                });
            rank.synchronize();
            CHECK(sums == std::vector<float>(4, 259.0F));
        });
    };
    add([]<class Rank>(Rank& rank) {
        return sk::cp::RingExchange<sk::bf16>(rank, rank.template sub_mesh<sk::Axes<sk::Cp>>(), 4);
    });
    add([]<class Rank>(Rank& rank) {
        return sk::cp::GatherExchange<sk::bf16>(rank, rank.template sub_mesh<sk::Axes<sk::Cp>>(), 4);
    });
}

TEST_CASE("cp: whoever leaves a ring by an exception has no block under way, beside its computation either") {
    struct Planted {};
    for (const bool backward : {false, true}) {
        std::atomic<bool> left = false;
        std::atomic<bool> read = false;
        double received = 0;
        sk::threads::run(
            Mesh(1, 1, 2),
            [&](auto& rank) {
                sk::cp::RingExchange<double> ring(rank, rank.template sub_mesh<sk::Axes<sk::Cp>>(), 1000);
                Values own(1000, 1.0);
                Values gradients(1000);
                if (rank.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
                const auto use = [&](std::size_t source, std::span<const double> block, auto...) {
                    if (rank.rank() == 0) { throw Planted(); }
                    if (source == 1) { return; }
                    while (!left) { std::this_thread::yield(); }
                    received = block[999];
                    read = true;
                    throw Planted();
                };
                try {
                    if (backward) {
                        ring.each_with_gradients(std::span<const double>(own), std::span(gradients), use);
                    } else {
                        ring.each(std::span<const double>(own), use);
                    }
                } catch (const Planted&) {}
                own.assign(1000, 99.0);
                if (rank.rank() == 0) {
                    left = true;
                    while (!read) { std::this_thread::yield(); }  // a rank that is gone ends the other's ring
                }
                try {
                    rank.synchronize();
                } catch (const sk::PeerError&) {}  // rank 0 is gone
            },
            {}, {.overlap = sk::threads::Overlap::threads});
        CHECK(received == 1.0);
    }
}

TEST_CASE("cp: a ring moves size - 1 blocks forward, and these and size blocks of gradients backward") {
    constexpr std::size_t cp = 4;
    sk::threads::run(Mesh(1, 1, cp), [&](auto& rank) {
        const auto comm = rank.template sub_mesh<sk::Axes<sk::Cp>>();
        const sk::cp::AttentionShape shape{1, 2, 6, 4};
        sk::cp::Attention<double> attention(rank, comm, shape);
        const Values q(shape.queries());
        const Values kv(shape.block());
        Values out(q.size());
        Values lse(shape.rows());
        Values dq(q.size());
        Values dkv(kv.size());
        const auto calls = [&] {
            std::uint64_t n = 0;
            std::uint64_t payload = 0;
            for (const auto& entry : rank.traffic().entries()) {
                n += entry.calls;
                payload += entry.payload.value;
            }
            CHECK(payload % (n * shape.block() * sizeof(double)) == 0);
            rank.traffic().clear();
            return n;
        };
        rank.traffic().clear();
        attention.forward(q, kv, std::span(out), std::span(lse));
        CHECK(calls() == 2 * (cp - 1));  // a send and a receive each
        attention.backward(q, kv, out, lse, q, std::span(dq), std::span(dkv));
        CHECK(calls() == 2 * (cp - 1 + cp));
    });
}

TEST_CASE("cp: sizes that do not fit are refused by name") {
    CHECK_THROWS_WITH_AS(
        static_cast<void>(sk::cp::CausalChunks::of(18, 4, 0)),
        doctest::Contains("CausalChunks: a sequence of 18 tokens over cp = 4, expected a multiple of 8"),
        std::invalid_argument);
    sk::threads::run(Mesh(1, 1, 2), [](auto& rank) {
        const auto comm = rank.template sub_mesh<sk::Axes<sk::Cp>>();
        CHECK_THROWS_AS((sk::cp::Attention<double>(rank, comm, {1, 1, 3, 2})), std::invalid_argument);
        sk::cp::Attention<double> attention(rank, comm, {1, 1, 4, 2});
        Values q(8);
        Values kv(16);
        Values lse(3);
        CHECK_THROWS_WITH_AS(attention.forward(q, kv, std::span(q), std::span(lse)),
                             doctest::Contains("cp::Attention: 3 rows, expected 4"), std::invalid_argument);
        CHECK_THROWS_WITH_AS(attention.forward(q, q, std::span(q), std::span(lse)),
                             doctest::Contains("cp::Attention: 8 keys and values, expected 16"),
                             std::invalid_argument);
    });
}

}  // namespace attention_test
