// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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

/// Returns what a rule is called; without a name, a text of those of its states.
template <class Rule>
std::string name_of_rule(const typename Rule::Options& options) {
    if constexpr (requires { Rule::name_of(options); }) {
        return Rule::name_of(options);
    } else if constexpr (requires { std::string_view(Rule::name); }) {
        return std::string(Rule::name);
    } else {
        std::string text = "one with";
        for (const std::string_view state : Rule::state_names) { append(text, " ", state); }
        return Rule::state_names.empty() ? "one without states" : text;
    }
}

/// Returns names and texts of what an optimizer states beside its name and each step's learning rate: its other
/// hyper-parameters as far as they have the names of a ParamGroup's, or ranges.
template <class Rule>
std::vector<std::pair<std::string, std::string>> statements_of(const typename Rule::Options& options) {
    if constexpr (requires { Rule::statements(options); }) {
        return Rule::statements(options);
    } else {
        std::vector<std::pair<std::string, std::string>> stated;
        const auto add = [&](std::string_view name, double value) {
            for (const auto& one : stated) {
                if (one.first == name) { return; }
            }
            stated.emplace_back(name, number_text(value));
        };
        if constexpr (requires { static_cast<unsigned>(options.rule); }) {
            stated.emplace_back("momentum rule", concat("number ", static_cast<unsigned>(options.rule)));
        }
        if constexpr (requires { static_cast<unsigned>(options.scale); }) {
            stated.emplace_back("scale", concat("number ", static_cast<unsigned>(options.scale)));
        }
        for_each_own(ParamGroup{}, [&](std::string_view name, const auto& /*given*/, auto member) {
            if constexpr (std::is_invocable_v<decltype(member), const typename Rule::Options&>) {
                add(name, member(options));
            }
        });
        add("weight_decay", options.weight_decay);
        if constexpr (rules::StatesRanges<Rule>) {
            for (const auto& option : Rule::ranges) {
                if (option.name != "learning_rate") { add(option.name, options.*option.member); }
            }
        }
        return stated;
    }
}

class RuleFunctions;
class UpdateFunctions;

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
struct AnyRule;
}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail {

/// How far the updates of a rule are, without its type.
struct AnyProgress {
    static constexpr std::size_t most_products = 4;

    const RuleFunctions* rule = nullptr;
    ElementType arithmetic = ElementType::fp32;  ///< of the updates
    std::uint64_t steps = 0;
    double products[most_products]{};
};

/// One step's update, as bytes.
struct AnyRuleUpdate {
    static constexpr std::size_t most_bytes = 128;
    static constexpr std::size_t most_states = 4;

    alignas(16) std::byte bytes[most_bytes]{};
};
/// The same where a kernel knows its type.
template <class Update>
struct alignas(AnyRuleUpdate::most_bytes) KnownRuleUpdate : Update {
    using Functor = Update;
};

/// The update of a group's elements with a rule that is a value, to be run in a stream's order: rules::UpdateSpans
/// whose element types are values.
struct AnyUpdateWork {
    const UpdateFunctions* rule;
    const HostConversions* conversions;
    HostConversions::Convert load_gradients;  ///< as one of those
    std::span<const rules::UpdateRange> ranges;
    const AnyRuleUpdate* updates;
    const std::uint32_t* skip;
    std::size_t count;       ///< of elements
    ElementType arithmetic;  ///< of the update
    ElementType updated;     ///< the type of `master`
    ElementType gathers;     ///< of `gathered`
    ElementType gradients;
    CodeSizes codes{};    ///< where `gathered` are codes
    bool rounds = false;  ///< masters stochastically
    void* master;
    void* gathered = nullptr;  ///< null where the master itself is that
    const void* gradient = nullptr;
    std::uint16_t* rest = nullptr;  ///< null where that is all there is
    float* scales = nullptr;
    std::uint64_t seed = 0;
    std::uint64_t state_seed = 0;
    const std::uint64_t* steps = nullptr;
    const AnyStateSpan* states = nullptr;
    std::size_t state_count = 0;

    void operator()() const;
    /// Gives it to a stream of the host or of a device.
    void give(const Stream& stream) const;
    /// Returns whether its elements are of an UpdateTypes.
    template <class Types>
    bool is_of() const noexcept {
        return updated == element_type_of<typename Types::Master> &&
               gathers == element_type_of<typename Types::Gather> &&
               gradients == element_type_of<typename Types::Reduction> && codes == code_sizes<typename Types::Gather>;
    }
    /// Returns what it reads and writes, with N states in `Storage`.
    /// @pre is_of<Types>()
    template <class Types, std::size_t N, class Storage>
    auto spans() const {
        using Gather = typename Types::Gather;
        const auto optional = [&]<class T>(T* elements, std::size_t size) {
            return std::span<T>(elements, elements == nullptr ? 0 : size);
        };
        rules::UpdateSpans<typename Types::Master, Gather, typename Types::Reduction, N, Storage> spans{
            {static_cast<typename Types::Master*>(master), count},
            optional(static_cast<Gather*>(gathered), count),
            {static_cast<const typename Types::Reduction*>(gradient), count},
            {},
            {seed, rounds ? steps : nullptr},
            {state_seed, steps},
            optional(rest, count),
            optional(scales, BlockInt8<>::blocks(count))};
        std::size_t number = 0;
        for (auto& state : spans.states) {
            state = states[number++].template as<typename decltype(spans)::StateStorage, typename Types::A>(count);
        }
        return spans;
    }
};

/// Updates of groups with the same element types on a device: of one, as an entry of a table or a launch, or of all
/// that have entries of a table, as a launch.
struct DeviceUpdates {
    /// An entry, and behind which of a launch's works its own end.
    struct Entry {
        List<std::byte> bytes{};
        std::uint64_t end = 0;
    };

    const AnyUpdateWork* work;                 ///< of any of the groups
    Entry* entry = nullptr;                    ///< to be made, behind the end that it has
    engine::LaunchBatch<std::byte> entries{};  ///< to be launched, if there are any
};

/// Some neighbouring elements of an update, as far as they are in its arithmetic type.
struct ElementsToUpdate {
    void* masters;
    const void* gradients;
    std::size_t begin;  ///< of the first one among the work's
    std::size_t count;
    std::uint64_t element;  ///< the number of the first one, which no mesh changes
};

/// What a rule does with elements.
class UpdateFunctions {
  public:
    /// Updates elements, with the states that the work has of them.
    virtual void update(const AnyUpdateWork& work, const AnyRuleUpdate& update,
                        const ElementsToUpdate& elements) const = 0;
    /// Whether a file of the program launches its updates of such elements on a device.
    virtual bool launches(const AnyUpdateWork& work) const = 0;
    /// Gives them to a device's stream.
    virtual void give(const Stream& stream, const DeviceUpdates& updates) const = 0;

  protected:
    ~UpdateFunctions() = default;
};

/// The functions of a rule, to whom knows no more of it.
class RuleFunctions : public UpdateFunctions {
  public:
    virtual std::string name(const AnyOptions& options) const = 0;
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
    virtual void begin(AnyProgress& progress, const ChosenOptions<AnyOptions>& given,
                       const ChosenOptions<AnyOptions>& own, double scale, AnyRuleUpdate& update) const = 0;

    /// Gives a device's stream what `begin` does for some groups, behind `first` unless that is null.
    virtual void begin(const Stream& stream, const BeginStep* first, std::uint64_t groups,
                       const BeginUpdates<AnyRule, float>& work) const = 0;

  protected:
    ~RuleFunctions() = default;
};

[[noreturn, gnu::cold]] inline void refuse_update() {
    throw std::logic_error("a rule has no loop for the element types of a group of its optimizer's model");
}

/// An update in host memory. The rule updates elements in its arithmetic type: where they lie if they are of it, and
/// else some at a time, which are converted and then are in the nearest cache.
class HostUpdate {
  public:
    explicit HostUpdate(const AnyUpdateWork& work) noexcept
        : work_(work), to_(*work.conversions), updated_(work.gathered != nullptr ? to_.masters : to_.stored) {}

    void operator()() const {
        const bool skipped = *work_.skip != 0;
        if (to_.begin_codes == nullptr) {
            if (skipped) { return; }
            for (const rules::UpdateRange& range : work_.ranges) { update(range); }
            return;
        }
        update_and_code(
            work_.ranges, skipped, work_.count, [&](const rules::UpdateRange& range) { update(range); },
            [&](std::size_t begin, std::size_t end) {
                to_.begin_codes(work_.master, work_.count, work_.gathered, work_.scales, begin, end);
            });
    }

  private:
    /// Elements that are converted together: with their states, they fit into the nearest cache.
    static constexpr std::size_t block = 512;
    static constexpr std::size_t block_bytes = block * sizeof(double);
    static_assert(block % Block8::block == 0);

    template <class Byte>
    static Byte* at(Byte* memory, ElementType type, std::size_t element) noexcept {
        using Bytes = std::conditional_t<std::is_const_v<Byte>, const std::byte, std::byte>;
        return static_cast<Bytes*>(memory) + element * size_of(type);
    }
    void update(const rules::UpdateRange& range) const {
        const AnyRuleUpdate& update = work_.updates[range.update];
        const bool gathers = work_.gathered != nullptr && to_.gather != nullptr;
        const bool rounds = updated_.round != nullptr && work_.rounds && work_.rest == nullptr;
        const bool whole = !gathers && updated_.load == nullptr && work_.load_gradients == nullptr;
        const std::size_t most = whole ? range.end - range.begin : block;
        alignas(64) std::byte masters[block_bytes];
        alignas(64) std::byte gradients[block_bytes];
        for (std::size_t begin = range.begin; begin < range.end; begin += most) {
            const std::size_t count = begin + most < range.end ? most : range.end - begin;
            ElementsToUpdate part{at(work_.master, work_.updated, begin), at(work_.gradient, work_.gradients, begin),
                                  begin, count, range.element + (begin - range.begin)};
            void* const stored = part.masters;
            if (work_.load_gradients != nullptr) {
                work_.load_gradients(part.gradients, gradients, count);
                part.gradients = gradients;
            }
            if (work_.rest != nullptr) {
                to_.join(stored, work_.rest + begin, masters, count);
                part.masters = masters;
            } else if (updated_.load != nullptr) {
                updated_.load(stored, masters, count);
                part.masters = masters;
            }
            work_.rule->update(work_, update, part);
            if (work_.rest != nullptr) {
                to_.split(masters, stored, work_.rest + begin, count);
            } else if (rounds) {
                updated_.round(masters, stored, count, work_.seed, *work_.steps, part.element);
            } else if (updated_.store != nullptr) {
                updated_.store(masters, stored, count);
            }
            if (gathers) { to_.gather(stored, at(work_.gathered, work_.gathers, begin), count); }
        }
    }

    const AnyUpdateWork& work_;
    const HostConversions& to_;
    const HostConversions::Updated& updated_;
};
inline void AnyUpdateWork::operator()() const { HostUpdate{*this}(); }
inline void AnyUpdateWork::give(const Stream& stream) const {
    if (stream.on_device()) { return rule->give(stream, {.work = this}); }
    stream.submit(*this);  // of the host's, where no kernel of a device's is made of it
}

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// An OptimizerRule that asks its options which one it is.
struct AnyRule {
    using Options = AnyOptions;
    using Progress = AnyProgress;
    template <class>
    using Update = AnyRuleUpdate;
    static constexpr std::array<std::string_view, AnyRuleUpdate::most_states> state_names{"0", "1", "2", "3"};

    static std::string name_of(const Options& options) { return options.rule->name(options); }
    static std::string_view state_name(const Options& options, std::size_t s) { return options.rule->state_name(s); }
    static std::size_t state_count(const Options& options) { return options.rule->state_count(options); }
    static StateKind state_kind(const Options& options) { return options.rule->states(); }
    static bool takes(const Options& options, std::size_t states) { return options.rule->takes(states); }
    static void validate(const Options& options, ElementType arithmetic, SourceLocation where) {
        options.rule->validate(options, arithmetic, where);
    }
    static auto statements(const Options& options) { return options.rule->statements(options); }
    static Progress beginning(const Options& options, ElementType arithmetic) {
        return options.rule->beginning(arithmetic);
    }
    static void for_each_product(auto& progress, const auto& f) {
        if (progress.rule == nullptr) { return; }
        const List<GroupProgress::Number> numbers = progress.rule->numbers();
        for (std::size_t i = 1; i < numbers.size(); ++i) { f(numbers[i].name, progress.products[i - 1]); }
    }
    static void begin(Progress& progress, const ChosenOptions<Options>& given, const ChosenOptions<Options>& own,
                      double scale, AnyRuleUpdate& update) {
        given.options.rule->begin(progress, given, own, scale, update);
    }
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail {

inline AnyOptions options_of(const ParamGroup& group, const AnyOptions& options, SourceLocation where) {
    return options.rule->options_of(group, options, where);
}

/// Whether a rule is no larger than an AnyRule can be.
template <class Rule>
constexpr bool fits_any_rule() noexcept {
    using Update = typename Rule::template Update<double>;
    return AnyOptions::fits<typename Rule::Options> && sizeof(Update) <= AnyRuleUpdate::most_bytes &&
           alignof(Update) <= 16 && Rule::state_names.size() <= AnyRuleUpdate::most_states &&
           sizeof(typename Rule::Progress) <= 8 * (1 + AnyProgress::most_products);
}

}  // namespace shardkit::detail
