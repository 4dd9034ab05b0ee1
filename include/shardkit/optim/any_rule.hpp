// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/any_update.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/launch_batch.hpp>
#include <shardkit/sharded/host_conversions.hpp>

// A rule as a value: options, progress and updates are bytes, and who knows their types are functions. So what
// optimizers share is compiled once, and of a rule the loops over elements.

namespace shardkit::detail {

/// What a rule's updates need of other groups and ranks.
enum class RuleKind : std::uint8_t {
    elements,  ///< nothing: each element is updated for itself
    matrices,  ///< whole matrices
    sums,      ///< sums over whole parameters
};

/// The functions of a rule, to whom knows no more of it.
class RuleFunctions : public UpdateFunctions {
  public:
    virtual std::string name() const = 0;
    virtual RuleKind kind() const = 0;
    virtual StateKind states() const = 0;
    virtual std::string_view state_name(std::size_t state) const = 0;
    virtual std::size_t state_count(const AnyOptions& options) const = 0;
    /// Whether it has loops with so many states.
    virtual bool takes(std::size_t states) const = 0;
    virtual void validate(const AnyOptions& options, ElementType arithmetic, SourceLocation where) const = 0;
    virtual AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) const = 0;
    virtual std::vector<std::pair<std::string, std::string>> statements(const AnyOptions& options) const = 0;
    virtual AnyProgress beginning(ElementType arithmetic) const = 0;
    /// What there is of a progress: its steps, and the products.
    virtual List<GroupProgress::Number> numbers() const = 0;
    /// Counts a step, in which the learning rate is that of `own`, and makes its update.
    virtual void begin(AnyProgress& progress, const ChosenOptions& given, const ChosenOptions& own, double scale,
                       AnyRuleUpdate& update) const = 0;

    /// Gives a device's stream what `begin` does for some groups, behind `first` unless that is null.
    virtual void begin(const Stream& stream, const BeginStep* first, std::uint64_t groups,
                       const StepTables& work) const = 0;

  protected:
    ~RuleFunctions() = default;
};

/// Begins updates by the functions of each one's rule.
struct BeginsByFunctions {
    static void begin(AnyProgress& progress, const ChosenOptions& given, const ChosenOptions& own, double scale,
                      AnyRuleUpdate& update) {
        given.options.rule->begin(progress, given, own, scale, update);
    }
};

inline AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) {
    return options.rule->options_of(group, options, where);
}

/// Whether a rule is no larger than its bytes can be.
template <class Rule>
constexpr bool fits_any_rule() noexcept {
    using Update = typename Rule::template Update<double>;
    return AnyOptions::fits<typename Rule::Options> && sizeof(Update) <= AnyRuleUpdate::most_bytes &&
           alignof(Update) <= 16 && Rule::state_names.size() <= AnyRuleUpdate::most_states &&
           sizeof(typename Rule::Progress) <= 8 * (1 + AnyProgress::most_products);
}

}  // namespace shardkit::detail
