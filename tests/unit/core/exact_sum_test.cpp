// SPDX-License-Identifier: Apache-2.0
#include <shardkit/core/exact_sum.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace sk = shardkit;

namespace exact_sum_test {

namespace {

double double_of(const std::string& bits) { return std::bit_cast<double>(std::stoull(bits, nullptr, 16)); }

/// Adds in as many sums as `ranks`, which travel and are added as doubles.
double summed(const std::vector<double>& values, std::size_t ranks) {
    std::vector<double> travelling(sk::ExactSum::numbers);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        sk::ExactSum sum;
        for (std::size_t i = rank; i < values.size(); i += ranks) { sum.add(values[i]); }
        std::vector<double> own(sk::ExactSum::numbers);
        sum.add_to(own.data());
        for (std::size_t i = 0; i < own.size(); ++i) { travelling[i] += own[i]; }
    }
    return sk::ExactSum(travelling.data()).value();
}

}  // namespace

TEST_CASE("ExactSum: the sums of Python's integers, in any order and on any number of ranks") {
    std::ifstream file(std::string(SHARDKIT_GOLDEN_DIR) + "/exact_sum_golden.json");
    REQUIRE(file);
    const auto golden = nlohmann::json::parse(file);
    CHECK(golden.size() > 150);
    std::mt19937 random(5);
    for (const auto& one : golden) {
        CAPTURE(one.at("name").get<std::string>());
        std::vector<double> values;
        for (const auto& bits : one.at("values")) { values.push_back(double_of(bits.get<std::string>())); }
        const auto expected = one.at("sum").get<std::string>();
        for (const std::size_t ranks : {1U, 2U, 3U, 8U}) {
            CAPTURE(ranks);
            const double sum = summed(values, ranks);
            if (expected == "nan") {
                CHECK(std::isnan(sum));
            } else {
                CHECK(std::bit_cast<std::uint64_t>(sum) == std::stoull(expected, nullptr, 16));
            }
            std::shuffle(values.begin(), values.end(), random);
        }
    }
}

TEST_CASE("ExactSum: a closed form that every other order of doubles loses") {
    sk::ExactSum sum;
    for (int i = 0; i < 1000; ++i) {
        sum.add(1e300);
        sum.add(1);
        sum.add(-1e300);
    }
    CHECK(sum.value() == 1000);
    CHECK(sk::ExactSum().value() == 0);
    CHECK_FALSE(std::signbit(sk::ExactSum().value()));
}

TEST_CASE("ExactSum: integers of 128 bits at any position are what their doubles are") {
    std::mt19937_64 random(6);
    for (std::uint64_t position = 0; position <= 1983; position += 1 + position % 7) {
        const std::uint64_t low = random() >> 12U;
        const std::uint64_t high = random() >> 12U;
        sk::ExactSum integer;
        integer.add_integer(position, low, high);
        sk::ExactSum::split(position, low, 0, -1,
                            [&](std::size_t i, std::int64_t part) { integer.add_part(i, part); });
        CHECK(integer.value() == std::ldexp(static_cast<double>(high), static_cast<int>(position) + 64 - 1074));
    }
}

}  // namespace exact_sum_test
