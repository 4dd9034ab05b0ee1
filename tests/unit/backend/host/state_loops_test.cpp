// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <shardkit/backend/host/for_each_lanes.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>

#include "kernel_data.hpp"

namespace sk = shardkit;
namespace test = shardkit::test;
namespace loops = shardkit::host::detail;

// The loop of stored states that this processor takes is compared with the functor on numbers in stored_update_test.
// Here are the ones that other processors take, beside it.

namespace state_loops_test {

namespace {

constexpr std::size_t blocks = 19;  // no whole number of those that a loop updates at once
constexpr std::size_t count = blocks * sk::Block8::block;

/// A user's rule: products that are added in one expression, of lanes and of numbers.
struct OwnUpdate {
    float rate = 0.3F;
    const float* scale;  // in memory: no product is known before

    template <class V>
    void operator()(V& parameter, V& average, V& square, V gradient) const {
        using sk::rules::square_root;
        const float beta = rate * *scale + rate;
        average = average * beta + gradient * (1.0F - beta * *scale);
        square = square * 0.9F + (gradient * gradient) * 0.1F;
        parameter = parameter - average * rate / (square_root(square) + 1e-8F) * (beta * *scale + 1.0F);
    }
};
struct OwnRule {
    static constexpr std::array<bool, 2> squares{false, true};
    static constexpr std::size_t states = 2;
};

enum class Loop { compiled, avx2, wide };

/// Parameters and states behind two updates by one of the loops.
template <class Storage, std::size_t States>
struct Updated {
    static constexpr bool coded = Storage::format == sk::StateFormat::block8;
    using Element = std::conditional_t<coded, std::uint8_t, sk::bf16>;

    std::vector<float> parameter = test::random_elements<float>(count, 1);
    std::vector<sk::bf16> gathered = std::vector<sk::bf16>(count);
    std::array<std::vector<Element>, States> elements;
    std::array<std::vector<float>, States> scales;

    template <class Update>
    Updated(Loop loop, const Update& update) {
        loops::StateStreams<Storage, States> to{{}, {}, (std::uint64_t{1} << 32U) - 40};
        for (std::size_t s = 0; s < States; ++s) {
            elements[s].resize(count);
            scales[s].resize(blocks);
            to.pointers[s] = {elements[s].data(), scales[s].data()};
        }
        for (std::uint32_t step = 0; step < 2; ++step) {
            const auto gradient = test::random_elements<float>(count, 2 + step);
            for (std::size_t pair = 0; pair < to.draws.size(); ++pair) {
                to.draws[pair] = sk::detail::StateDraws(5, step, static_cast<std::uint32_t>(pair));
            }
            run(loop, update, to, gradient.data());
        }
    }
    template <class Update>
    void run(Loop loop, const Update& update, const loops::StateStreams<Storage, States>& to, const float* gradient) {
        const auto step = [update](auto& target, auto& p, auto g, auto&... states) {
            update(p, states..., g);
            target = p;
        };
        const loops::Output<sk::bf16> target{gathered.data()};
        const loops::InOut<float> parameters{parameter.data()};
        const loops::Input<float> gradients{gradient};
        if (loop == Loop::wide) {
            loops::wide::run_state_blocks(blocks, step, to, target, parameters, gradients);
        } else if (loop == Loop::avx2) {
            loops::avx2::run_state_blocks(blocks, step, to, target, parameters, gradients);
        } else {
            loops::compiled::run_state_blocks(blocks, step, to, target, parameters, gradients);
        }
    }
    void check_against(const Updated& other) const {
        CHECK(test::same_bits(parameter, other.parameter));
        CHECK(test::same_bits(gathered, other.gathered));
        for (std::size_t s = 0; s < States; ++s) {
            CHECK(test::same_bits(elements[s], other.elements[s]));
            CHECK(test::same_bits(scales[s], other.scales[s]));
        }
    }
};

template <sk::StateFormat Format, class Rule, std::size_t States, class Update>
void check_loops(const Update& update) {
    using Result = Updated<sk::detail::StateStorage<Format, sk::detail::squares_of<Rule>()>, States>;
    const Result expected(Loop::compiled, update);
    CHECK(!test::same_bits(expected.parameter, test::random_elements<float>(count, 1)));
    if (loops::use_avx2()) { Result(Loop::avx2, update).check_against(expected); }
    if (loops::use_wide()) { Result(Loop::wide, update).check_against(expected); }
}

template <class Rule, std::size_t States, class Update>
void check_formats(const Update& update) {
    check_loops<sk::StateFormat::bf16, Rule, States>(update);
    check_loops<sk::StateFormat::block8, Rule, States>(update);
}

}  // namespace

TEST_CASE("stored states: each loop that a processor may take gives the same bits") {
    if (!loops::use_avx2() && !loops::use_wide()) { MESSAGE("there is one loop only"); }
    check_formats<sk::rules::AdamWRule, 2>(
        sk::rules::adamw_update<float>({.learning_rate = 0.1, .weight_decay = 0.1}, 0.9, 0.999, 0.7));
    check_formats<sk::rules::AmsgradRule, 3>(
        sk::rules::AmsgradUpdate<float>{sk::rules::adamw_update<float>({.learning_rate = 0.1}, 0.9, 0.999, 0.7)});
    check_formats<sk::rules::LionRule, 1>(
        sk::rules::lion_update<float>({.learning_rate = 0.1, .weight_decay = 0.1}, 0.7));
    check_formats<sk::rules::SgdRule, 1>(
        sk::rules::sgd_update<float>({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1}, 0.7));
    const float scale = 0.7F;
    check_formats<OwnRule, 2>(OwnUpdate{.scale = &scale});
}

TEST_CASE("stored states: bf16 rounds infinities, NaN and every exponent as numbers are rounded one at a time") {
    using Storage = sk::detail::StateStorage<sk::StateFormat::bf16, 0>;
    constexpr std::array<std::uint32_t, 8> fractions{0, 1, 0x7fff, 0x8000, 0xffff, 0x3f'8000, 0x40'0000, 0x7f'ffff};
    std::vector<float> numbers;
    for (std::uint32_t upper = 0; upper < 512; ++upper) {
        for (const std::uint32_t fraction : fractions) {
            numbers.push_back(std::bit_cast<float>(upper << 23U | fraction));
        }
    }
    const sk::detail::StateDraws draws(5, 6, 0);
    std::vector<sk::bf16> expected;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        expected.push_back(sk::rules::round_stochastically<sk::bf16>(numbers[i], draws(i) & 0xffffU));
    }
    std::vector<sk::bf16> states(numbers.size());
    const loops::StateStreams<Storage, 1> to{{{{states.data(), nullptr}}}, {draws}, 0};
    loops::for_each_state_block(
        numbers.size(), [](auto number, auto& state) { state = number; }, to, loops::Input<float>{numbers.data()});
    CHECK(test::same_bits(states, expected));
}

}  // namespace state_loops_test
