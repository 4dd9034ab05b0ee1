// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/compiled/interface.hpp>

// An optimizer's rule of a trainer's file, as the core has it: options and updates are bytes, and what knows their
// types are functions of that file.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

struct OwnRuleTable;

/// Options of such a rule: those that an optimizer knows by name, and all as bytes.
struct OwnOptions {
    static constexpr std::size_t most_bytes = 192;

    const OwnRuleTable* table = nullptr;
    double learning_rate = 0;
    double weight_decay = 0;
    // Of a ParamGroup's, those that the rule has.
    double beta1 = 0;
    double beta2 = 0;
    double epsilon = 0;
    double momentum = 0;
    alignas(16) std::byte bytes[most_bytes]{};
};

struct OwnRuleTable {
    static constexpr std::size_t most_states = 4;
    static constexpr std::size_t most_update_bytes = 128;

    /// The rule's loop over elements: `spans` are the rules::UpdateSpans of these types and that many states.
    struct Loop {
        ElementType master;
        ElementType gather;
        ElementType gradient;
        std::size_t states;
        void (*run)(const void* update, const void* spans);
    };

    std::string_view name;  ///< empty for one without
    std::span<const std::string_view> state_names;
    std::span<const std::string_view> members;  ///< names of a ParamGroup's that its options have
    std::span<const Loop> loops;
    std::size_t (*state_count)(const OwnOptions& options);
    void (*validate)(const OwnOptions& options, ElementType arithmetic, SourceLocation where);
    /// Calls add(to, name, number) for each enumeration that ranks must choose alike.
    void (*list_choices)(const OwnOptions& options, void (*add)(void* to, std::string_view name, unsigned number),
                         void* to);
    /// Makes one step's update in an arithmetic.
    void (*update)(ElementType arithmetic, std::uint64_t steps, const OwnOptions& options, double scale,
                   void* update);
};

RuleOptimizer* make_own_optimizer(const Groups& groups, const OwnOptions& options,
                                  std::vector<ParamGroup> param_groups, SourceLocation where);

}  // namespace SHARDKIT_CHECKED_BUILD
