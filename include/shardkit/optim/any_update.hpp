// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/rank/launch_batch.hpp>
#include <shardkit/sharded/host_conversions.hpp>

// An update as a value: element types are values, and who knows them and the arithmetic are functions.

namespace shardkit::detail {

class UpdateFunctions;

/// Returns what lies so many bytes behind; null behind null.
template <class T>
T* behind(T* memory, std::size_t bytes) noexcept {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return memory == nullptr ? nullptr : reinterpret_cast<T*>(reinterpret_cast<Byte*>(memory) + bytes);
}

/// An AnyRuleUpdate where a kernel knows its type.
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
    StateFormat format = StateFormat::full;  ///< of states
    std::array<AnyStateSpan, AnyRuleUpdate::most_states> states{};
    std::size_t state_count = 0;

    void operator()() const;
    /// Gives it to a stream of the host or of a device.
    void give(const Stream& stream) const;
    /// Returns whether a file of the program launches it on a device.
    bool launches() const;
    /// Returns the same with other gradients, of its arithmetic type.
    AnyUpdateWork along(const void* directions) const noexcept {
        AnyUpdateWork work = *this;
        work.load_gradients = nullptr;
        work.gradients = arithmetic;
        work.gradient = directions;
        return work;
    }
    /// Returns the same of some of its elements, with its ranges.
    AnyUpdateWork part(std::size_t begin, std::size_t size) const noexcept {
        AnyUpdateWork part = *this;
        part.count = size;
        part.master = behind(master, begin * size_of(updated));
        part.gathered = behind(gathered, begin * size_of(gathers));
        part.gradient = behind(gradient, begin * size_of(gradients));
        part.rest = behind(rest, begin * sizeof(*rest));
        if (codes.block > 0) { part.scales = behind(scales, begin / codes.block * sizeof(*scales)); }
        for (std::size_t s = 0; s < state_count; ++s) {
            part.states[s].elements = behind(states[s].elements, begin * size_of(stored_type(format, arithmetic)));
            part.states[s].scales = behind(states[s].scales, begin / Block8::block * sizeof(float));
        }
        return part;
    }
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
            optional(scales, CodeFormat<block_int8>::blocks(count))};
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
    const void* pass = nullptr;                ///< of a FactoredRule: a FactoredPass of one of its parameters
};

/// Some neighbouring elements of an update, as far as they are in its arithmetic type.
struct ElementsToUpdate {
    void* masters;
    bool half;       ///< masters are bf16, and not of that type; states are full
    bf16* gathered;  ///< where the update writes masters of fp32 too; states are not full; else null
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

    void update(const rules::UpdateRange& range) const {
        const AnyRuleUpdate& update = work_.updates[range.update];
        const bool full = work_.format == StateFormat::full || work_.state_count == 0;
        const bool gathers = work_.gathered != nullptr && to_.gather != nullptr && (full || !to_.gathers_halves);
        const bool rounds = updated_.round != nullptr && work_.rounds && work_.rest == nullptr;
        const bool half = updated_.half && full && work_.rest == nullptr && !rounds;
        const bool loads = updated_.load != nullptr && work_.rest == nullptr && !half;
        const bool whole = !gathers && !loads && work_.rest == nullptr && work_.load_gradients == nullptr;
        const std::size_t most = whole ? range.end - range.begin : block;
        alignas(64) std::byte masters[block_bytes];
        alignas(64) std::byte gradients[block_bytes];
        for (std::size_t begin = range.begin; begin < range.end; begin += most) {
            const std::size_t count = begin + most < range.end ? most : range.end - begin;
            ElementsToUpdate part{behind(work_.master, begin * size_of(work_.updated)),
                                  half,
                                  full || !to_.gathers_halves
                                      ? nullptr
                                      : behind(static_cast<bf16*>(work_.gathered), begin * sizeof(bf16)),
                                  behind(work_.gradient, begin * size_of(work_.gradients)),
                                  begin,
                                  count,
                                  range.element + (begin - range.begin)};
            void* const stored = part.masters;
            if (work_.load_gradients != nullptr) {
                work_.load_gradients(part.gradients, gradients, count);
                part.gradients = gradients;
            }
            if (work_.rest != nullptr) {
                to_.join(stored, work_.rest + begin, masters, count);
                part.masters = masters;
            } else if (loads) {
                updated_.load(stored, masters, count);
                part.masters = masters;
            }
            work_.rule->update(work_, update, part);
            if (work_.rest != nullptr) {
                to_.split(masters, stored, work_.rest + begin, count);
            } else if (rounds) {
                updated_.round(masters, stored, count, work_.seed, *work_.steps, part.element);
            } else if (loads) {
                updated_.store(masters, stored, count);
            }
            if (gathers) { to_.gather(stored, behind(work_.gathered, begin * size_of(work_.gathers)), count); }
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
inline bool AnyUpdateWork::launches() const { return rule->launches(*this); }
/// Refuses a group of whose updates `work` is one, where no file of the program launches it on the device of the
/// stream.
inline void require_launch(const Stream& stream, const AnyUpdateWork& work, bool launches, std::string_view path,
                           SourceLocation where) {
    if (host_reads(stream) || launches) { return; }
    throw_usage_error(where, "'", path, "': no file of this program launches the updates of its ", name(work.updated),
                      " elements (", name(work.gathers), " gathered, ", name(work.gradients),
                      " reduced) with the optimizer's rule on a device: expected a shardkit::nccl::KernelsFor of "
                      "the group's Precision and the rule, instantiated in a file that nvcc compiles");
}

}  // namespace shardkit::detail
