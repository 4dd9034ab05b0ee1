// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/policy/slice_order.hpp>

namespace sk = shardkit;

namespace slice_order_test {

namespace {

/// The sum of `count` slices from `first` on, made along the tree; none where it was not.
struct Subtree {
    std::size_t first = 0;
    std::size_t count = 0;
};
using Sum = std::optional<Subtree>;

/// The sum of two: a subtree only if they are its two halves.
constexpr Sum add(const Sum& a, const Sum& b) {
    if (!a || !b || a->count != b->count) { return std::nullopt; }
    const std::size_t first = a->first < b->first ? a->first : b->first;
    const std::size_t second = a->first < b->first ? b->first : a->first;
    if (second != first + a->count || first % (2 * a->count) != 0) { return std::nullopt; }
    return Subtree{first, 2 * a->count};
}
/// Neighbours first, then pairs of neighbours, as ReduceOp::tree_sum adds.
constexpr Sum tree_sum(std::vector<Sum> sums) {
    for (std::size_t left = sums.size(); left > 1; left /= 2) {
        for (std::size_t i = 0; i < left / 2; ++i) { sums[i] = add(sums[2 * i], sums[2 * i + 1]); }
    }
    return sums.front();
}

/// The sum of a step, and the largest number of buffers of sums that a rank had at a time.
struct Step {
    Sum sum;
    std::size_t most = 0;
};
/// A step of groups of N ranks, that are summed in each microbatch: their stacks, and at its end the groups' sum.
template <class SliceOf, class Carry>
constexpr Step step(const sk::SliceOrder& order, const SliceOf& slice_of, const Carry& carry) {
    Step made;
    std::vector<Sum> of_groups;
    for (std::size_t group = 0; group < order.ranks / order.together; ++group) {
        std::vector<Sum> stack;
        for (std::size_t m = 0; m < order.microbatches(); ++m) {
            std::vector<Sum> leaves;
            for (std::size_t place = 0; place < order.together; ++place) {
                leaves.push_back(Subtree{slice_of(order, group * order.together + place, m), 1});
            }
            Sum last = tree_sum(std::move(leaves));
            made.most = made.most < stack.size() + 1 ? stack.size() + 1 : made.most;
            const sk::detail::SliceCarry its = carry(m);
            if (its.depth != stack.size() || its.merges > stack.size()) { return {}; }
            for (std::size_t i = 0; i < its.merges; ++i) {
                last = add(last, stack.back());
                stack.pop_back();
            }
            stack.push_back(last);
        }
        if (stack.size() != 1) { return {}; }
        of_groups.push_back(stack.front());
    }
    made.sum = tree_sum(std::move(of_groups));
    return made;
}
template <class SliceOf, class Carry>
constexpr bool makes_the_tree(const sk::SliceOrder& order, const SliceOf& slice_of, const Carry& carry) {
    const Step made = step(order, slice_of, carry);
    return made.sum && made.sum->first == 0 && made.sum->count == order.slices &&
           made.most == sk::slice_sums(order.microbatches());
}
constexpr auto ours = [](const sk::SliceOrder& order, std::size_t rank, std::size_t m) {
    return sk::slice_of(order, rank, m);
};
constexpr auto our_carry = [](std::size_t m) { return sk::detail::slice_carry(m); };

/// f(order) for all powers of two up to `most`: slices, ranks that divide them, groups that divide the ranks.
template <class F>
constexpr void for_each_order(std::size_t most, const F& f) {
    for (std::size_t slices = 1; slices <= most; slices *= 2) {
        for (std::size_t ranks = 1; ranks <= slices; ranks *= 2) {
            for (std::size_t together = 1; together <= ranks; together *= 2) { f({slices, ranks, together}); }
        }
    }
}

/// The order on `ranks` ranks of a policy, with that many slices.
template <class Policy>
sk::SliceOrder order_of(const Policy& policy, std::size_t slices, std::size_t ranks) {
    return sk::slice_order(sk::rules::policy_values(sk::TreeSums<Policy>{sk::Slices{slices}, policy}, ranks), ranks);
}

}  // namespace

TEST_CASE("slice_of: every policy, on any number of ranks, adds along the same tree over the slices") {
    std::size_t orders = 0;
    for_each_order(64, [&](const sk::SliceOrder& order) {
        CAPTURE(order.slices);
        CAPTURE(order.ranks);
        CAPTURE(order.together);
        CHECK(makes_the_tree(order, ours, our_carry));
        ++orders;
    });
    CHECK(orders == 84);  // of 2^k slices (k + 1) (k + 2) / 2
    static_assert(makes_the_tree({16, 4, 2}, ours, our_carry));
}

TEST_CASE("slice_of: each slice is taken once") {
    for_each_order(64, [&](const sk::SliceOrder& order) {
        std::vector<int> taken(order.slices);
        for (std::size_t rank = 0; rank < order.ranks; ++rank) {
            for (std::size_t m = 0; m < order.microbatches(); ++m) { ++taken.at(sk::slice_of(order, rank, m)); }
        }
        CHECK(taken == std::vector<int>(order.slices, 1));
    });
}

TEST_CASE("slice_of: an order that takes slices otherwise, and a stack that adds in turn, make no tree") {
    const auto swapped = [](const sk::SliceOrder& order, std::size_t rank, std::size_t m) {
        return sk::slice_of(order, rank, m ^ 1U);  // the two halves of a pair: the same sums
    };
    const auto strided = [](const sk::SliceOrder& order, std::size_t rank, std::size_t m) {
        return m * order.ranks + rank;
    };
    const auto blocked = [](const sk::SliceOrder& order, std::size_t rank, std::size_t m) {
        return rank * order.microbatches() + m;
    };
    const auto in_turn = [](std::size_t m) { return sk::detail::SliceCarry{m > 0 ? 1U : 0U, m > 0 ? 1U : 0U}; };
    CHECK(makes_the_tree({16, 4, 4}, swapped, our_carry));
    CHECK_FALSE(makes_the_tree({16, 4, 1}, strided, our_carry));
    CHECK_FALSE(makes_the_tree({16, 4, 2}, strided, our_carry));
    CHECK_FALSE(makes_the_tree({16, 4, 4}, blocked, our_carry));
    CHECK_FALSE(makes_the_tree({16, 4, 2}, blocked, our_carry));
    CHECK_FALSE(makes_the_tree({16, 4, 4}, ours, in_turn));
}

TEST_CASE("slice_order: policies that reduce each microbatch take slices with their group") {
    CHECK(order_of(sk::NoShard{}, 64, 8) == sk::SliceOrder{64, 8, 1});
    CHECK(order_of(sk::ShardOptimizer{}, 64, 8) == sk::SliceOrder{64, 8, 1});
    CHECK(order_of(sk::ShardGradOp{}, 64, 8) == sk::SliceOrder{64, 8, 8});
    CHECK(order_of(sk::FullShard{}, 64, 8) == sk::SliceOrder{64, 8, 8});
    CHECK(order_of(sk::HybridShard<2>{}, 64, 8) == sk::SliceOrder{64, 8, 2});
    CHECK(order_of(sk::HybridShard<sk::dynamic>{4}, 64, 8) == sk::SliceOrder{64, 8, 4});
    // With one microbatch all of them take the rank's.
    CHECK(order_of(sk::FullShard{}, 8, 8) == order_of(sk::NoShard{}, 8, 8));
    // The three formulas.
    CHECK(sk::slice_of({64, 8, 8}, 3, 5) == 5 * 8 + 3);
    CHECK(sk::slice_of({64, 8, 1}, 3, 5) == 3 * 8 + 5);
    CHECK(sk::slice_of({64, 8, 2}, 5, 3) == 2 * (2 * 8) + 3 * 2 + 1);
}

TEST_CASE("slice_order: what no policy can have is refused") {
    CHECK_THROWS_WITH_AS(sk::Slices{12}, doctest::Contains("Slices: 12 given, expected a power of two"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(sk::Slices{0}, doctest::Contains("Slices: 0 given"), std::invalid_argument);
    const auto own = [](sk::Summation summation, std::size_t slices) {
        sk::rules::PolicyValues values{.name = "own"};
        values.summation = summation;
        values.slices = slices;
        return values;
    };
    CHECK(sk::DynamicPolicy(own(sk::Summation::tree, 8)).values(2).slices == 8);
    for (const sk::rules::PolicyValues& wrong : {own(sk::Summation::rank_order, 8), own(sk::Summation::tree, 12)}) {
        CHECK_THROWS_WITH_AS(
            sk::DynamicPolicy{wrong},
            doctest::Contains("impossible policy: slices are a power of two and need Summation::tree"),
            std::invalid_argument);
    }
}

}  // namespace slice_order_test
