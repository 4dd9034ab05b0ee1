// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/factored/factored_works.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/spi/updates.hpp>

// What a FactoredRule does, to who knows no more of it than the arithmetic.

namespace shardkit::detail {

/// Its functions.
template <std::floating_point A>
struct FactoredFunctions {
    std::string_view name;
    std::span<const rules::KeptState> kept;
    std::span<const rules::PassSum> sums;
    /// Gives a stream of the host a pass over a parameter; behind the last one, what writes its directions.
    void (*run)(const Stream& stream, const HostPart<A>& part, std::size_t pass);
    /// The same on a device, for a group of which `of` is an update; and whether a file of the program launches it.
    void (*launch)(const Stream& stream, const AnyUpdateWork& of, const FactoredPass<A>& due);
    bool (*launches)(const AnyUpdateWork& of);
    /// What is done of a parameter behind a pass's sums, unless the step is skipped.
    void (*settle)(const Stream& stream, const FactoredPass<A>& due, const std::uint32_t* skip);
};

template <class Rule, std::floating_point A>
struct FactoredFunctionsOf {
    static_assert(
        [] {
            for (std::size_t s = 0; s < Rule::sums.size(); ++s) {
                const std::size_t least = s == 0 ? 0 : Rule::sums[s - 1].pass;
                const std::size_t pass = Rule::sums[s].pass;
                if (Rule::sums[s].over == rules::Over::whole || pass < least || pass > (s == 0 ? 0 : least + 1)) {
                    return false;
                }
            }
            return true;
        }(),
        "FactoredRule: sums are over rows or columns, sorted by pass, and no pass is without one");
    static_assert(Rule::kept.size() <= rules::most_kept_states && Rule::sums.size() <= rules::most_pass_sums,
                  "FactoredRule: a rule keeps at most 4 states and has at most 6 sums");

    static void run(const Stream& stream, const HostPart<A>& part, std::size_t pass) {
        if (pass == passes_of<Rule>) {
            return stream.submit([of = part] {
                of.for_each_element([&](const rules::FactoredElement<A>& element, A* direction) {
                    *direction = of.template update_of<Rule>().direction(element, of.numbers);
                });
            });
        }
        with_pass<Rule>(pass, [&]<std::size_t Pass>(std::integral_constant<std::size_t, Pass>) {
            stream.submit([of = part] { add_terms_on_host<Rule, Pass>(of); });
        });
    }
    static void launch(const Stream& stream, const AnyUpdateWork& of, const FactoredPass<A>& due) {
        launch_of<PassesOf<Rule>>(of)->run(stream, {.work = &of, .pass = &due});
    }
    static bool launches(const AnyUpdateWork& of) { return launch_of<PassesOf<Rule>>(of) != nullptr; }
    static void settle(const Stream& stream, const FactoredPass<A>& due, const std::uint32_t* skip) {
        with_pass<Rule>(due.pass, [&]<std::size_t Pass>(std::integral_constant<std::size_t, Pass>) {
            host::AnyKernels::run_once(stream, Settle<Rule, A, Pass>{due.of, skip});
        });
    }
};
template <class Rule, std::floating_point A>
inline constexpr FactoredFunctions<A> factored_functions_in{
    Rule::name,
    Rule::kept,
    Rule::sums,
    &FactoredFunctionsOf<Rule, A>::run,
    &FactoredFunctionsOf<Rule, A>::launch,
    &FactoredFunctionsOf<Rule, A>::launches,
    &FactoredFunctionsOf<Rule, A>::settle,
};
/// Those of a rule.
template <class Rule>
inline constexpr AnyFactoredRule factored_functions_of{factored_functions_in<Rule, float>,
                                                       factored_functions_in<Rule, double>};

}  // namespace shardkit::detail
