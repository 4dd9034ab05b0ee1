// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// How far the updates of a group and of each of its parameters are, as numbers that a checkpoint keeps; the same on
/// every rank.
struct GroupProgress {
    struct Number {
        std::string_view name;
        bool real = false;  ///< a double's bits
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// The elements of a parameter from `begin` on, row-major, to the next part's: further rows, say.
    struct Part {
        std::size_t parameter = 0;
        std::size_t begin = 0;
        std::vector<std::uint64_t> numbers;
    };

    List<Number> numbers;                   ///< what there is of each: its steps, and running products
    std::vector<std::uint64_t> own;         ///< the group's: the first is of the steps that it took part in
    std::vector<std::uint64_t> beginning;   ///< what they are before the first step
    List<Part> parts;                       ///< of parameters that are not everywhere as far, in order
    std::vector<std::uint64_t> parameters;  ///< of each parameter, one's numbers behind the other's
    List<char> updated;                     ///< whether the optimizer updates each parameter, and has states of it

    std::span<std::uint64_t> of(std::size_t parameter) noexcept {
        return {parameters.data() + parameter * numbers.size(), numbers.size()};
    }
    std::span<const std::uint64_t> of(std::size_t parameter) const noexcept {
        return {parameters.data() + parameter * numbers.size(), numbers.size()};
    }
};

/// f(name, product) for each running product of a rule's Progress.
template <class Rule, class Progress, class F>
void for_each_product(Progress& progress, const F& f) {
    if constexpr (requires { Rule::for_each_product(progress, f); }) {
        Rule::for_each_product(progress, f);
    } else if constexpr (requires { Rule::products; }) {
        for (const auto& product : Rule::products) { f(product.name, progress.*product.member); }
    }
}
/// What there is of a rule's Progress.
template <class Rule>
List<GroupProgress::Number> progress_numbers(const typename Rule::Progress& progress) {
    List<GroupProgress::Number> numbers{{"steps", false}};
    for_each_product<Rule>(progress, [&](std::string_view name, const double& /*product*/) {
        numbers.push_back(GroupProgress::Number{name, true});
    });
    return numbers;
}
/// A Progress as these numbers.
template <class Rule>
std::vector<std::uint64_t> numbers_of(const typename Rule::Progress& progress) {
    std::vector<std::uint64_t> bits{progress.steps};
    for_each_product<Rule>(progress, [&](std::string_view /*name*/, const double& product) {
        bits.push_back(std::bit_cast<std::uint64_t>(product));
    });
    return bits;
}
/// And back, into a Progress of the rule.
template <class Rule>
typename Rule::Progress progress_of(typename Rule::Progress progress, const std::vector<std::uint64_t>& bits) {
    progress.steps = static_cast<decltype(progress.steps)>(bits[0]);
    std::size_t next = 1;
    for_each_product<Rule>(
        progress, [&](std::string_view /*name*/, double& product) { product = std::bit_cast<double>(bits[next++]); });
    return progress;
}

}  // namespace shardkit::detail
