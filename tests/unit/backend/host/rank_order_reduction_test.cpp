// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/fp16.hpp>

#include "test_size.hpp"

namespace rank_order_reduction_test {

namespace {

using namespace shardkit;

constexpr std::size_t most_side_by_side = host::detail::Operands::most;
constexpr std::size_t guard = 3;  // elements before and after; makes every array unaligned

template <class T>
T given(std::size_t rank, std::size_t i) {
    // Sums of these are rounded, and in another order to other values; bytes wrap around.
    const auto some = static_cast<float>((rank * 7919 + i * 104729) % 1000) / 37.0F;
    float value = some * (rank % 3 == 1 ? 64.0F : 1.0F);
    if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>) {
        // In 16 bits only what large values that cancel each other leave of small ones tells orders apart.
        value = rank % 2 == 1 ? some / 4096.0F : rank % 4 == 0 ? 0x1p15F : -0x1p15F;
    }
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::int64_t>(value));
    } else {
        return static_cast<T>(value);
    }
}

/// The two halves of the ranks apart, then their sum.
template <class In, class A>
A halves(std::size_t first, std::size_t ranks, std::size_t i) {
    if (ranks == 1) { return static_cast<A>(static_cast<Arithmetic<In>>(given<In>(first, i))); }
    const A left = halves<In, A>(first, ranks / 2, i);
    return static_cast<A>(left + halves<In, A>(first + ranks / 2, ranks / 2, i));
}
/// One element after the other, rank after rank.
template <class In, class Out>
Out expected(ReduceOp op, std::size_t ranks, std::size_t i) {
    using A = Arithmetic<Out>;
    if (op == ReduceOp::tree_sum) { return static_cast<Out>(halves<In, A>(0, ranks, i)); }
    A sum = static_cast<A>(static_cast<Arithmetic<In>>(given<In>(0, i)));
    for (std::size_t q = 1; q < ranks; ++q) {
        const A next = static_cast<A>(static_cast<Arithmetic<In>>(given<In>(q, i)));
        if (op == ReduceOp::sum) { sum = static_cast<A>(sum + next); }
        if (op == ReduceOp::max) { sum = std::max(sum, next); }
        if (op == ReduceOp::min) { sum = std::min(sum, next); }
    }
    return static_cast<Out>(sum);
}

template <class T>
bool same_bits(T a, T b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Where result r begins: `first` + r `step` elements after the begin of a cache line.
struct Layout {
    std::size_t first = guard;
    std::size_t step = 0;
};

/// `results` places, written as `store` says; the first of them is input `replaced` if that is a rank, and then
/// cached.
template <class In, class Out>
bool reduces(ReduceOp op, std::size_t ranks, std::size_t count, std::size_t results, std::size_t replaced,
             host::detail::Store store, Layout layout = {}) {
    std::vector<std::vector<In>> inputs(ranks, std::vector<In>(count + 2 * guard));
    for (std::size_t q = 0; q < ranks; ++q) {
        for (std::size_t i = 0; i < count; ++i) { inputs[q][guard + i] = given<In>(q, i); }
    }
    constexpr std::size_t line = 64 / sizeof(Out);
    const Out untouched = static_cast<Out>(77);
    const std::size_t last = layout.first + results * layout.step;
    std::vector<std::vector<Out>> outputs(results, std::vector<Out>(count + line + last + guard, untouched));
    std::vector<Out*> places;
    for (std::size_t r = 0; r < results; ++r) {
        const auto address = reinterpret_cast<std::uintptr_t>(outputs[r].data());
        places.push_back(outputs[r].data() + (64 - address % 64) % 64 / sizeof(Out) + layout.first + r * layout.step);
    }
    const bool replaces = replaced < ranks;
    if constexpr (std::is_same_v<In, Out>) {
        if (replaces) { places[0] = inputs[replaced].data() + guard; }
    }
    const bool with_trees = op == ReduceOp::tree_sum || count % 2 == 0;
    host::detail::reduce_in_rank_order(
        with_trees ? host::detail::reducer_of<In, Out> : host::detail::reducer_of<In, Out, false>, op, ranks, count,
        [&](std::size_t q) { return static_cast<const In*>(inputs[q].data() + guard); }, results,
        [&](std::size_t r) {
            return host::detail::Result<Out>{places[r], replaces && r == 0 ? host::detail::Store::cached : store};
        });
    host::detail::finish(store);
    bool right = true;
    for (std::size_t i = 0; i < count; ++i) {
        const Out value = expected<In, Out>(op, ranks, i);
        for (const Out* place : places) { right = right && same_bits(place[i], value); }
    }
    for (std::size_t r = replaces ? 1 : 0; r < results; ++r) {
        for (std::size_t i = 0; i < guard; ++i) {
            right = right && same_bits(places[r][count + i], untouched) &&
                    (i >= layout.first || same_bits(*(places[r] - 1 - i), untouched));
        }
    }
    return right;
}

constexpr std::size_t rank_counts[] = {1, 2, 4, 5, 8, 16, 32, most_side_by_side, most_side_by_side + 1};
constexpr std::size_t counts[] = {0, 1, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1024, 1500};

template <class In, class Out>
void check_sizes() {
    for (const std::size_t ranks : rank_counts) {
        for (const std::size_t count : counts) {
            CAPTURE(ranks);
            CAPTURE(count);
            for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
                CHECK(reduces<In, Out>(op, ranks, count, 1, ranks, host::detail::Store::cached));
            }
            CHECK(reduces<In, Out>(ReduceOp::sum, ranks, count, 3, ranks, host::detail::Store::cached));
            for (const Layout layout : {Layout{0, 0}, Layout{guard, 0}, Layout{0, 1}}) {
                CHECK(
                    reduces<In, Out>(ReduceOp::sum, ranks, count, 2, ranks, host::detail::Store::streaming, layout));
            }
            if (std::has_single_bit(ranks)) {
                CHECK(reduces<In, Out>(ReduceOp::tree_sum, ranks, count, 1, ranks, host::detail::Store::cached));
                CHECK(reduces<In, Out>(ReduceOp::tree_sum, ranks, count, 2, ranks, host::detail::Store::streaming));
            }
            if constexpr (std::is_same_v<In, Out>) {
                CHECK(reduces<In, Out>(ReduceOp::sum, ranks, count, 2, ranks - 1, host::detail::Store::cached));
                CHECK(reduces<In, Out>(ReduceOp::sum, ranks, count, 3, 0, host::detail::Store::streaming));
            }
        }
    }
}

}  // namespace

TEST_CASE("host: a call that is given no tree cannot ask for one") {
    CHECK(static_cast<ReduceOp>(detail::TreelessOp(ReduceOp::max)) == ReduceOp::max);
    CHECK_THROWS_AS(detail::TreelessOp{ReduceOp::tree_sum}, std::invalid_argument);
}

TEST_CASE_TEMPLATE("host: a reduction of any size, to one place or several, gives the serial sum bit for bit", T,
                   float, double, bf16, fp16, std::int32_t, std::uint8_t) {
    check_sizes<T, T>();
}

TEST_CASE("host: a reduction into another type gives the serial sum bit for bit") {
    check_sizes<bf16, float>();
    check_sizes<fp16, float>();
    check_sizes<float, bf16>();
    check_sizes<bf16, fp16>();
    check_sizes<bf16, double>();
    check_sizes<float, double>();
}

TEST_CASE("host: more results than are written side by side are all written") {
    CHECK(reduces<float, float>(ReduceOp::sum, 2, 1000, most_side_by_side + 1, 2, host::detail::Store::cached));
    CHECK(reduces<float, float>(ReduceOp::sum, most_side_by_side, 1000, most_side_by_side, 0,
                                host::detail::Store::cached));
}

namespace {

template <class T>
T from_bits(std::size_t bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    return value;
}

/// Whether `sum` is what adding the two one by one gives. Of two NaNs either may stay, made quiet.
template <class T>
bool is_sum(T sum, T a, T b) {
    const auto given_a = static_cast<float>(a);
    const auto given_b = static_cast<float>(b);
    const auto quiet = [](float value) { return static_cast<T>(value); };  // rounding makes it so
    if (given_a != given_a && given_b != given_b) {
        return same_bits(sum, quiet(given_a)) || same_bits(sum, quiet(given_b));
    }
    return same_bits(sum, static_cast<T>(given_a + given_b));
}

/// Adds every value of T to others of each kind, in both orders, by `sum_up(operands, count)`.
template <class T, class SumUp>
void check_every_value(SumUp sum_up) {
    constexpr std::size_t values = 65536;
    std::vector<T> every(values + 1);
    for (std::size_t i = 0; i < values; ++i) { every[i + 1] = from_bits<T>(i); }
    std::vector<T> others(values + 1);
    alignas(64) static T sums[values];
    // Zeros, ones, the ends of the subnormal and of the normal range, infinities, NaNs of both kinds, and a value
    // between.
    constexpr bool brain = std::is_same_v<T, bf16>;
    const std::size_t one = brain ? 0x3f80 : 0x3c00;
    const std::size_t infinity = brain ? 0x7f80 : 0x7c00;
    const std::size_t smallest_normal = brain ? 0x0080 : 0x0400;
    for (const std::size_t magnitude :
         {std::size_t{0}, one, one + 0x55, std::size_t{1}, smallest_normal - 1, smallest_normal, infinity - 1,
          infinity, infinity + 1, infinity + 0x55, std::size_t{0x7fff}}) {
        for (const std::size_t sign : {std::size_t{0}, std::size_t{0x8000}}) {
            std::fill(others.begin(), others.end(), from_bits<T>(sign | magnitude));
            for (const bool first : {true, false}) {
                for (const host::detail::Store store :
                     {host::detail::Store::cached, host::detail::Store::streaming}) {
                    if (test_size::reduced() && first != (store == host::detail::Store::cached)) { continue; }
                    const auto input = [&](std::size_t q) {
                        return static_cast<const T*>((q == 0) == first ? every.data() + 1 : others.data() + 1);
                    };
                    const auto result = [&](std::size_t) { return host::detail::Result<T>{sums, store}; };
                    const host::detail::Operands operands(2, input, 1, result);
                    std::fill_n(sums, values, from_bits<T>(0x1234));
                    sum_up(operands, values);
                    host::detail::finish(store);
                    std::size_t wrong = 0;
                    for (std::size_t i = 0; i < values; ++i) {
                        wrong += is_sum(sums[i], every[i + 1], others[1]) ? 0U : 1U;
                    }
                    CAPTURE(sign | magnitude);
                    CAPTURE(first);
                    CHECK(wrong == 0);
                }
            }
        }
    }
}

}  // namespace

TEST_CASE_TEMPLATE("host: sums of every 16-bit value are those of one by one, with every set of instructions", T,
                   bf16, fp16) {
    check_every_value<T>([](const auto& operands, std::size_t count) {
        host::detail::reduce_blocks<true, T, T>(ReduceOp::sum, operands, 0, count);
    });
    if (host::detail::sums_in_lanes()) {
        check_every_value<T>([](const auto& operands, std::size_t count) {
            host::detail::avx2::sum_lanes<float, 0, T, T>(operands, 0, count);
        });
    }
    if constexpr (std::is_same_v<T, bf16>) {
        if (host::detail::avx512::use()) {
            check_every_value<T>([](const auto& operands, std::size_t count) {
                host::detail::avx512::sum_bf16<0>(operands, 0, count);
            });
        }
    }
}

namespace {

/// Compares the sums of `ranks` ranks along a tree of `Tree`, two blocks and a part of one, with every set of
/// instructions that this processor has.
template <std::size_t Tree, class T>
void check_tree(std::size_t ranks) {
    using A = Arithmetic<T>;
    constexpr std::size_t count = 2 * host::detail::bundle_block + 3 * host::detail::summed_elements<A>;
    std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
    for (std::size_t q = 0; q < ranks; ++q) {
        for (std::size_t i = 0; i < count; ++i) { inputs[q][i] = given<T>(q, i); }
    }
    std::vector<T> sums(count);
    const auto input = [&](std::size_t q) { return static_cast<const T*>(inputs[q].data()); };
    const auto result = [&](std::size_t) { return host::detail::Result<T>{sums.data()}; };
    const host::detail::Operands operands(ranks, input, 1, result);
    const auto check = [&](auto sum_up) {
        std::fill(sums.begin(), sums.end(), T{});
        sum_up(operands, 0, count);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
            wrong += same_bits(sums[i], expected<T, T>(ReduceOp::tree_sum, ranks, i)) ? 0U : 1U;
        }
        CAPTURE(ranks);
        CHECK(wrong == 0);
    };
    check([](const auto& given, std::size_t begin, std::size_t end) {
        host::detail::reduce_blocks<true, T, T>(ReduceOp::tree_sum, given, begin, end);
    });
    if (host::detail::sums_in_lanes()) { check(host::detail::avx2::sum_lanes<A, Tree, T, T>); }
    if constexpr (std::is_same_v<T, bf16>) {
        if (host::detail::avx512::use()) { check(host::detail::avx512::sum_bf16<Tree>); }
    }
}

}  // namespace

TEST_CASE_TEMPLATE("host: sums along a tree are those of halves, with every set of instructions", T, float, double,
                   bf16, fp16) {
    check_tree<4, T>(4);
    check_tree<8, T>(8);
    for (const std::size_t ranks : {std::size_t{16}, std::size_t{32}, std::size_t{64}}) {
        check_tree<host::detail::tree_of_bundles, T>(ranks);
    }
}

TEST_CASE_TEMPLATE("host: the sum over one rank is every value rounded, signalling NaNs too", T, bf16, fp16) {
    std::vector<T> values(65536);
    for (std::size_t i = 0; i < values.size(); ++i) { values[i] = from_bits<T>(i); }
    std::vector<T> sums(values.size());
    host::detail::reduce_in_rank_order(
        host::detail::reducer_of<T, T>, ReduceOp::sum, 1, values.size(),
        [&](std::size_t) { return static_cast<const T*>(values.data()); }, host::detail::Result<T>{sums.data()});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        wrong += same_bits(sums[i], static_cast<T>(static_cast<float>(values[i]))) ? 0U : 1U;
    }
    CHECK(wrong == 0);
}

}  // namespace rank_order_reduction_test
