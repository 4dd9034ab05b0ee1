// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "largest_difference.hpp"
#include "test_size.hpp"
#include "unit/sharded/trainer.hpp"

namespace toy SHARDKIT_BUILD {

/// Largest difference relative to max(1, |expected|); a NaN stays.
inline double distance(const std::vector<double>& given, const std::vector<double>& expected) {
    if (given.size() != expected.size()) { return HUGE_VAL; }
    double largest = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
        largest = larger(largest, std::abs(given[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
    }
    return largest;
}
inline double distance(const Trained& given, const Trained& expected) {
    double largest = distance(given.norms, expected.norms);
    if (given.parameters.size() != expected.parameters.size()) { return HUGE_VAL; }
    for (std::size_t t = 0; t < given.parameters.size(); ++t) {
        largest = larger(largest, distance(given.parameters[t], expected.parameters[t]));
    }
    return largest;
}

inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}
inline bool same_bits(const Trained& a, const Trained& b) {
    if (a.parameters.size() != b.parameters.size() || !same_bits(a.norms, b.norms)) { return false; }
    for (std::size_t t = 0; t < a.parameters.size(); ++t) {
        if (!same_bits(a.parameters[t], b.parameters[t])) { return false; }
    }
    return true;
}

/// The serial result, worked out once per training.
inline const Trained& oracle(const Training& training, std::size_t data_ranks) {
    static std::map<std::tuple<std::size_t, std::size_t, Rule, DivideBy, double, double, double, std::size_t>,
                    Trained>
        known;
    const std::size_t counted = training.divisor == DivideBy::data_ranks ? data_ranks : 1;
    auto [place, is_new] = known.try_emplace({training.steps, training.samples, training.rule, training.divisor,
                                              training.learning_rate, training.weight_decay, training.clip, counted});
    if (is_new) { place->second = train_serially(training, data_ranks); }
    return place->second;
}

struct Extents {
    std::size_t dp;
    std::size_t tp = 1;
    std::size_t cp = 1;
};
inline std::vector<Extents> worlds_and_meshes() {
    if (test_size::reduced()) { return {{3}, {4}, {1, 2, 2}}; }
    return {{1}, {2}, {3}, {4}, {5}, {8}, {2, 1, 2}, {2, 2, 1}, {1, 2, 2}, {1, 1, 3}};
}

/// Every rank has to hold the same bits, and those of rank 0 be close to the oracle's.
inline void compare_with_oracle(std::string_view policy, Extents e, const Training& training,
                                const std::vector<RankResult>& ranks, double tolerance) {
    CAPTURE(policy);
    CAPTURE(e.dp);
    CAPTURE(e.tp);
    CAPTURE(e.cp);
    CAPTURE(training.microbatches);
    CAPTURE(training.samples);
    CAPTURE(static_cast<int>(training.rule));
    CAPTURE(static_cast<int>(training.divisor));
    CHECK(distance(ranks[0], oracle(training, e.dp * e.cp)) <= tolerance);
    for (const auto& rank : ranks) { CHECK(same_bits(rank, ranks[0])); }
}
template <class Precision, class Policy>
void check_against_oracle(Extents e, Policy policy, const Training& training, double tolerance) {
    compare_with_oracle(Policy::name, e, training, train<Precision>(Mesh(e.dp, e.tp, e.cp), policy, training),
                        tolerance);
}

/// Every rule and divisor at least once, with and without clipping; 7 samples leave some ranks without work.
inline std::vector<Training> trainings(std::size_t microbatches) {
    return {{.microbatches = microbatches},
            {.microbatches = microbatches,
             .rule = Rule::momentum,
             .divisor = DivideBy::data_ranks,
             .learning_rate = 0.002},
            {.samples = 7, .microbatches = microbatches, .rule = Rule::nesterov, .clip = 0.5},
            {.microbatches = microbatches, .divisor = DivideBy::nothing, .learning_rate = 0.0005},
            {.microbatches = microbatches, .rule = Rule::adamw, .learning_rate = 0.01, .clip = 1}};
}

/// fp64, 1e-12, on every world, mesh and number of microbatches that `shards_on` admits.
template <class Policy, class MakePolicy>
void check_in_fp64(MakePolicy make) {
    const auto check = [&](Extents e) {
        const std::optional<Policy> policy = make(e);
        if (!policy) { return; }
        std::size_t number = 0;
        for (const std::size_t microbatches : {1U, 3U}) {
            for (const Training& training : trainings(microbatches)) {
                if (test_size::reduced() && number++ % 2 != 0) { continue; }  // each with one number of them
                check_against_oracle<sk::Precision<double>>(e, *policy, training, 1e-12);
            }
        }
    };
    for (const Extents e : worlds_and_meshes()) { check(e); }
}
template <class Policy>
void check_in_fp64() {
    check_in_fp64<Policy>([](Extents) { return std::optional<Policy>(Policy{}); });
}

}  // namespace toy SHARDKIT_BUILD
