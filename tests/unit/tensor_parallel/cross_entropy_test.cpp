// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over a split vocabulary against plain loops over whole rows.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/tensor_parallel/cross_entropy.hpp>

#include "largest_difference.hpp"

namespace sk = shardkit;

namespace cross_entropy_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

struct Case {
    std::size_t vocabulary;
    std::size_t tokens;
    std::size_t padded(std::size_t tp) const { return (vocabulary + tp - 1) / tp * tp; }
    std::size_t target(std::size_t t) const { return (t * 7 + 3) % vocabulary; }
    /// Some rows lie far from zero: a sum without the maximum would overflow.
    double logit(std::size_t t, std::size_t v) const {
        return 3 * std::sin(static_cast<double>(t * 31 + v * 17)) + (t % 3 == 1 ? 900 : t % 3 == 2 ? -900 : 0);
    }
};

struct Expected {
    double loss;
    std::vector<double> gradient;
};
Expected expected(const Case& c, std::size_t t, double scale) {
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t v = 0; v < c.vocabulary; ++v) { largest = std::max(largest, c.logit(t, v)); }
    double sum = 0;
    for (std::size_t v = 0; v < c.vocabulary; ++v) { sum += std::exp(c.logit(t, v) - largest); }
    Expected row{std::log(sum) - (c.logit(t, c.target(t)) - largest), {}};
    for (std::size_t v = 0; v < c.vocabulary; ++v) {
        row.gradient.push_back(scale * (std::exp(c.logit(t, v) - largest) / sum - (v == c.target(t) ? 1 : 0)));
    }
    return row;
}

template <class A, class Token>
void check(const Case& c, std::size_t tp, double tolerance) {
    CAPTURE(c.vocabulary);
    CAPTURE(c.tokens);
    CAPTURE(tp);
    constexpr double scale = 0.25;
    sk::threads::run(Mesh(2, tp, 1), [&](auto& rank) {
        const auto comm = rank.template sub_mesh<sk::Axes<sk::Tp>>();
        const auto part = sk::tp::VocabularyPart::of(c.vocabulary, c.padded(tp), tp, comm.rank());
        sk::tp::CrossEntropy<A> cross_entropy(rank, comm, part, c.tokens + 1);
        std::vector<A> logits(c.tokens * part.size);
        std::vector<Token> targets(c.tokens);
        std::vector<A> losses(c.tokens);
        for (const int repetition : {0, 1}) {
            CAPTURE(repetition);
            for (std::size_t t = 0; t < c.tokens; ++t) {
                targets[t] = static_cast<Token>(c.target(t));
                for (std::size_t k = 0; k < part.size; ++k) {
                    const std::size_t v = part.first + k;
                    // Whatever lies in the padding does not matter.
                    logits[t * part.size + k] =
                        static_cast<A>(v < c.vocabulary ? c.logit(t, v) : std::numeric_limits<double>::quiet_NaN());
                }
            }
            cross_entropy(std::span<A>(logits), std::span<const Token>(targets), static_cast<A>(scale),
                          std::span<A>(losses));
            double worst = 0;
            for (std::size_t t = 0; t < c.tokens; ++t) {
                const Expected row = expected(c, t, scale);
                const auto take = [&](A given, double wanted) {
                    worst = larger(worst, std::abs(static_cast<double>(given) - wanted));
                };
                take(losses[t], row.loss);
                for (std::size_t k = 0; k < part.size; ++k) {
                    const std::size_t v = part.first + k;
                    take(logits[t * part.size + k], v < c.vocabulary ? row.gradient[v] : 0);
                }
            }
            CHECK(worst <= tolerance);
        }
    });
}

}  // namespace

TEST_CASE("tp: cross-entropy over a split vocabulary is that of whole rows, padding or not") {
    for (const std::size_t tp : {1U, 2U, 3U, 4U}) {
        for (const Case c : {Case{256, 13}, Case{257, 4}, Case{5, 7}, Case{2, 3}, Case{12, 0}}) {
            check<double, std::uint16_t>(c, tp, 1e-12);
            check<double, std::int32_t>(c, tp, 1e-12);
            check<float, std::uint32_t>(c, tp, 2e-4);  // logits near 900 are 6e-5 apart in float
        }
    }
}

TEST_CASE("tp: a logit that is NaN makes its token's loss NaN on every rank, and no other token's") {
    sk::threads::run(Mesh(1, 2, 1), [](auto& rank) {
        const auto comm = rank.template sub_mesh<sk::Axes<sk::Tp>>();
        const auto part = sk::tp::VocabularyPart::of(6, 6, 2, comm.rank());
        sk::tp::CrossEntropy<double> cross_entropy(rank, comm, part, 2);
        std::vector<double> logits(6, 0.5);
        if (rank.rank() == 1) { logits[4] = std::numeric_limits<double>::quiet_NaN(); }
        const std::vector<std::uint8_t> targets{0, 5};
        std::vector<double> losses(2);
        cross_entropy(std::span(logits), std::span<const std::uint8_t>(targets), 1.0, std::span(losses));
        CHECK(losses[0] == doctest::Approx(std::log(6.0)));
        CHECK(std::isnan(losses[1]));
    });
}

TEST_CASE("tp: cross-entropy refuses sizes that disagree, and a padding that tp does not divide") {
    sk::threads::run(Mesh(1, 2, 1), [](auto& rank) {
        const auto comm = rank.template sub_mesh<sk::Axes<sk::Tp>>();
        const auto part = sk::tp::VocabularyPart::of(6, 6, 2, comm.rank());
        sk::tp::CrossEntropy<double> cross_entropy(rank, comm, part, 2);
        std::vector<double> logits(9);
        std::vector<double> losses(3);
        const std::vector<std::uint8_t> targets(3);
        CHECK_THROWS_WITH_AS(
            cross_entropy(std::span(logits), std::span<const std::uint8_t>(targets), 1.0, std::span(losses)),
            doctest::Contains(
                "tp::CrossEntropy: 9 logits and 3 losses for 3 tokens, expected 3 logits and a loss for "
                "each of at most 2 tokens"),
            std::invalid_argument);
        CHECK_THROWS_AS(
            cross_entropy(std::span(logits).first(5), std::span(targets).first(2), 1.0, std::span(losses).first(2)),
            std::invalid_argument);
    });
    CHECK_THROWS_WITH_AS(
        static_cast<void>(sk::tp::VocabularyPart::of(250, 250, 4, 0)),
        doctest::Contains("VocabularyPart: a vocabulary of 250 padded to 250 over tp = 4, expected a "
                          "multiple of 4 that is no less than the vocabulary"),
        std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(sk::tp::VocabularyPart::of(250, 248, 4, 0)), std::invalid_argument);
}

}  // namespace cross_entropy_test
