// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/memory_copies.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/sharded/blocks_of.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_communicators.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/group_statements.hpp>
#include <shardkit/sharded/torn_values.hpp>
#include <shardkit/sharded/whole_tensor.hpp>

namespace shardkit::detail {

/// Describes a group's values of one kind (parameters, masters, a state) on one rank.
struct SavedKind {
    StoredKind kind;
    ElementType type{};
    bool on_host = true;    ///< in memory that the host can read and write
    IndexRange saved;       ///< elements of the flat buffer that this rank can save; other ranks may have them too
    IndexRange loaded;      ///< elements that this rank must load; they include `saved`
    List<char> of{};        ///< whether each parameter has such values
    double code_scale = 0;  ///< of elements that are codes with a scale of their type; 0 for others
    std::string rule{};     ///< of states: what their optimizer's rule is called
};

/// A group's values of one kind, without their element type.
class SavedValues : public SavedKind, NotCopied {
  public:
    SavedValues(const SavedKind& what, const GroupGeometry& geometry)
        : SavedKind(what), geometry_(&geometry), read_(of.size()) {}
    virtual ~SavedValues() = default;

    /// Returns the address of element `flat` (of `loaded`) in host or device memory.
    virtual std::byte* memory(std::size_t flat) const = 0;
    /// Returns whether `memory` is a copy in host memory, of values that lie otherwise in the rank's. A save keeps
    /// its pieces; after a load `end_load` puts what was written to it in place.
    virtual bool is_copy() const noexcept { return false; }
    virtual void end_load() {}
    /// Notes, and returns, whether a load reads the values of a parameter.
    void will_read(std::size_t parameter) { read_[parameter] = 1; }
    bool is_read(std::size_t parameter) const noexcept { return read_[parameter] != 0; }
    /// Returns what accesses device memory, ordered after the compute stream's work; null where the host can access
    /// it.
    virtual std::unique_ptr<engine::MemoryCopies> copies(SourceLocation /*where*/) const { return nullptr; }
    /// Calls `use(parameter, elements)` with all elements of the whole tensor, row-major, for each of `parameters`.
    /// Collective over the shard group, and over tp where a tensor is split over it. Memory: the group's full buffer.
    /// Of what a load reads there is no more than its own elements.
    virtual void whole(std::span<const std::size_t> /*parameters*/,
                       const std::function<void(std::size_t, std::span<const std::byte>)>& /*use*/,
                       SourceLocation /*where*/) const {}

    /// Returns where the values lie: the group's geometry, or that of its blocks of 8 bits.
    const GroupGeometry& geometry() const noexcept { return *geometry_; }
    /// Returns the tensors that hold the values of parameter `p`, in the files of their kind. What is of another
    /// shape than the parameter, as scales are, is in one tensor, in its own order, with the name of the parameter's
    /// first one.
    List<StoredTensor> stored(const checkpoint::TensorNames& names, std::size_t p, SourceLocation where) const {
        const PlacedParameter& parameter = geometry_->parameters[p];
        checkpoint::StoredAs as = names(named_->path, named_->parameters[p]);
        if (geometry_ != named_ && !as.absent) {
            std::string name = as.parts.empty() ? as.name : as.parts.front().name;
            if (as.begin) { name += concat("[", *as.begin, "]"); }  // which others share
            as = checkpoint::stored(name + suffix_, parameter.shape);
        }
        return StoredOrder::of(as, geometry_->path, parameter, where);
    }

  protected:
    /// Takes names from the group whose values these are, of another geometry, with a suffix.
    void name_as(const GroupGeometry& group, std::string suffix = {}) {
        named_ = &group;
        suffix_ = std::move(suffix);
    }

  private:
    const GroupGeometry* geometry_;
    const GroupGeometry* named_ = geometry_;
    std::string suffix_;
    List<char> read_;
};

template <class Engine, class T>
class SavedValuesOf : public SavedValues {
  public:
    /// `memory` holds the elements `held` of the flat buffer. Where that is the host's, of an offloaded group, the
    /// host waits for the compute stream, behind which steps have stored them.
    SavedValuesOf(Context<Engine>& context, const GroupGeometry& group,
                  const GroupCommunicators<Engine>& communicators, StoredKind of_kind, std::span<T> memory,
                  IndexRange held, List<char> parameters)
        : SavedValues({of_kind, element_type_of<T>, host_reads<Engine> || lies_offloaded(group, of_kind),
                       group.updated, held, std::move(parameters), scale_of<T>},
                      group),
          context_(context),
          group_(group),
          communicators_(communicators),
          memory_(memory) {
        if (lies_offloaded(group, of_kind)) { context.compute_stream().synchronize(); }
    }

    std::byte* memory(std::size_t flat) const override {
        return reinterpret_cast<std::byte*>(memory_.data() + (flat - loaded.begin));
    }
    std::unique_ptr<engine::MemoryCopies> copies(SourceLocation where) const override {
        if constexpr (host_reads<Engine>) {
            return nullptr;
        } else {
            return std::make_unique<typename Engine::MemoryCopies>(context_.compute_stream(), where);
        }
    }
    void whole(std::span<const std::size_t> parameters,
               const std::function<void(std::size_t, std::span<const std::byte>)>& use,
               SourceLocation where) const override {
        const auto stream = context_.compute_stream();
        std::span<const T> full = part(saved);
        typename Engine::template Buffer<T> gathered;
        if (full.size() != group_.buffer_numel) {
            gathered =
                group_buffer<T>(context_, group_.path, "a group gathered for a checkpoint", group_.buffer_numel);
            gather_whole(communicators_, group_, full, gathered.span(), stream, where);
            full = gathered.span();
        }
        std::vector<T> host;
        for (const std::size_t parameter : parameters) {
            const IndexRange range = group_.parameters[parameter].range;
            const WholeTensor<Engine, T> tensor(context_, communicators_, group_, parameter,
                                                full.subspan(range.begin, range.size()), stream, where);
            host.resize(group_.parameters[parameter].shape.numel());
            tensor.copy(std::span<T>(host));
            use(parameter, std::as_bytes(std::span<const T>(host)));
        }
    }

  private:
    /// Split masters are shown joined, in the engine's memory.
    static bool lies_offloaded(const GroupGeometry& group, const StoredKind& kind) noexcept {
        return group.offloads() && (kind.role == Role::states || (kind.role == Role::master && group.keeps_master()));
    }
    std::span<T> part(IndexRange flat) const noexcept {
        return memory_.subspan(flat.begin - loaded.begin, flat.size());
    }

    Context<Engine>& context_;
    const GroupGeometry& group_;
    const GroupCommunicators<Engine>& communicators_;
    std::span<T> memory_;
};

/// The scales of a state in blocks of 8 bits.
template <class Engine>
class SavedScales final : private GroupGeometry, public SavedValuesOf<Engine, float> {
  public:
    SavedScales(Context<Engine>& context, const GroupGeometry& group, const GroupCommunicators<Engine>& communicators,
                StoredKind codes, std::span<float> scales, const List<char>& saved_ones)
        : GroupGeometry(blocks_of(group)),
          SavedValuesOf<Engine, float>(context, *this, communicators, {codes.role, codes.state, true}, scales,
                                       GroupGeometry::updated, saved_ones) {
        this->name_as(group);
    }
};

/// Values that lie otherwise in the rank's memory, as a copy in host memory.
/// Memory: of those that this rank updates, from the first use of `memory` on.
template <class T>
class CopiedValues : public SavedValues {
  public:
    CopiedValues(StoredKind of_kind, const GroupGeometry& geometry, List<char> parameters)
        : SavedValues({of_kind, element_type_of<T>, true, geometry.updated, geometry.updated, std::move(parameters)},
                      geometry) {}

    std::byte* memory(std::size_t flat) const override {
        if (copy_.size() != loaded.size()) {
            copy_.resize(loaded.size());
            fill(copy_);
        }
        return reinterpret_cast<std::byte*>(copy_.data() + (flat - loaded.begin));
    }
    bool is_copy() const noexcept override { return true; }

  protected:
    std::span<const T> copy() const noexcept { return copy_; }
    void release() { copy_ = {}; }

  private:
    /// Writes the values into the new copy. That of a load needs none: only what it read is put in place.
    virtual void fill(std::span<T> /*copy*/) const {}

    mutable std::vector<T> copy_;
};

/// Split master weights, as the fp32 numbers that they are.
template <class Engine, class Precision>
class SavedSplitMaster final : public CopiedValues<typename Precision::Master> {
    using Master = typename Precision::Master;

  public:
    SavedSplitMaster(GroupState<Engine, Precision>& state, List<char> parameters)
        : CopiedValues<Master>({Role::master, {}}, state.geometry(), std::move(parameters)), state_(state) {}

    void end_load() override {
        if (this->copy().empty()) { return; }
        state_.write_updated([&](auto values) {
            if constexpr (std::is_same_v<typename decltype(values)::value_type, Master>) {
                Engine::Kernels::copy_in(state_.context().compute_stream(), this->copy(), values);
            }
        });
        this->release();
    }
    void whole(std::span<const std::size_t> parameters,
               const std::function<void(std::size_t, std::span<const std::byte>)>& use,
               SourceLocation where) const override {
        state_.show_updated([&](auto values) {
            using Value = typename decltype(values)::value_type;
            const SavedValuesOf<Engine, Value> joined(state_.context(), state_.geometry(), state_.communicators(),
                                                      this->kind, values, this->loaded, this->of);
            joined.whole(parameters, use, where);
        });
    }

  private:
    void fill(std::span<Master> copy) const override {
        state_.show_updated([&](auto values) {
            if constexpr (std::is_same_v<typename decltype(values)::value_type, Master>) {
                Engine::Kernels::copy_out(state_.context().compute_stream(), std::span<const Master>(values), copy);
            }
        });
    }

    GroupState<Engine, Precision>& state_;
};

/// A state of a group, which a load can show in the form that it does not have in memory: as numbers where it is in
/// blocks of 8 bits, as codes and scales where it is not.
struct StateForm {
    std::size_t first;  ///< of its values in the group: numbers, or codes and behind them scales
    bool in_blocks;     ///< whether it is codes and scales
    /// Returns what takes the place of its values, of which it is given the first, for the parameters `of`.
    /// @throws std::invalid_argument where blocks of 8 bits would not lie in the rank's memory as they do in a file
    std::function<List<std::unique_ptr<SavedValues>>(const SavedValues& first, const List<char>& of,
                                                     SourceLocation where)>
        other;

    std::size_t count() const noexcept { return in_blocks ? 2 : 1; }
};

/// One group of a state.
class SavedGroup {
  public:
    virtual ~SavedGroup() = default;
    virtual const GroupGeometry& geometry() const noexcept = 0;
    /// Checks that nothing is in progress that a checkpoint does not hold.
    /// @throws UsageError within an accumulation, or while a save of the group is pending
    virtual void require_idle(std::string_view verb, SourceLocation where) const = 0;
    /// Prepares a load. @throws UsageError when a window is open
    virtual void begin_load(SourceLocation where) const = 0;
    virtual void end_load() const = 0;
    /// Return, and check, the values that a failed write left half written. @throws UsageError from the second where
    /// there are some
    virtual TornValues& torn() const noexcept = 0;
    virtual void require_whole(std::string_view verb, SourceLocation where) const = 0;
    /// Returns whether the host has waited for the group's last update or write.
    virtual bool was_waited_for() const noexcept = 0;
    /// Notes that a load has read a parameter.
    virtual void note_load(std::size_t parameter) const = 0;
    virtual void set_reader(MemoryReader* reader) const noexcept = 0;
    /// Returns what ranks compare of the group's updates.
    virtual GroupStatements& statements() const noexcept = 0;

    /// Registers a place where an optimizer keeps the reader of its states for the group; set_reader sets it as well.
    void also_block(MemoryReader*& reader) { of_states_.push_back(&reader); }

    /// Puts what was loaded into copies in place.
    void take_copies() const {
        for (const auto& each : values) { each->end_load(); }
    }

    List<std::unique_ptr<SavedValues>> values;
    /// The states among them, in their order.
    List<StateForm> forms;

  protected:
    List<MemoryReader**> of_states_;
};

template <class Engine, class Precision>
class SavedGroupOf final : public SavedGroup {
  public:
    explicit SavedGroupOf(GroupState<Engine, Precision>& state) : state_(state) {
        auto& parameters = state.parameters();
        List<char> all;
        List<char> trained;
        for (const PlacedParameter& p : state.geometry().parameters) {
            all.push_back(1);
            trained.push_back(p.frozen ? 0 : 1);
        }
        add<typename Precision::Written>(StoredKind{Role::parameters, {}}, parameters.loaded(),
                                         parameters.loaded_range(), std::move(all));
        if constexpr (Precision::has_master && !Precision::gathers_codes) {  // whose masters are the parameters
            if (state.geometry().keeps_master()) {
                add<typename Precision::Master>(StoredKind{Role::master, {}}, parameters.master(),
                                                state.geometry().updated, std::move(trained));
            }
        }
        if constexpr (can_split_master<Precision>) {
            if (state.geometry().splits_master()) {
                // NOLINTNEXTLINE(bugprone-use-after-move): a group has one of both masters
                values.push_back(std::make_unique<SavedSplitMaster<Engine, Precision>>(state, std::move(trained)));
            }
        }
    }

    const GroupGeometry& geometry() const noexcept override { return state_.geometry(); }
    void require_idle(std::string_view verb, SourceLocation where) const override {
        if (state_.step().busy()) {
            throw_usage_error(where, verb, ": '", state_.path(),
                              "' is within an accumulation or has reduced gradients, which no checkpoint holds: step "
                              "or drop them before");
        }
        if (state_.reader() != nullptr) {
            throw_usage_error(where, verb, ": an earlier save of '", state_.path(),
                              "' is still pending: commit it before");
        }
    }
    void begin_load(SourceLocation where) const override { state_.begin_write(where); }
    void end_load() const override { state_.end_load(); }
    TornValues& torn() const noexcept override { return state_.torn(); }
    void require_whole(std::string_view verb, SourceLocation where) const override {
        state_.require_whole(verb, where);
    }
    bool was_waited_for() const noexcept override {
        return detail::was_waited_for(state_.context().compute_stream(), state_.parameters().updated());
    }
    GroupStatements& statements() const noexcept override { return state_.statements(); }
    void note_load(std::size_t parameter) const override { state_.note_load(parameter); }
    void set_reader(MemoryReader* reader) const noexcept override {
        state_.set_reader(reader);
        for (MemoryReader** const of : of_states_) { *of = reader; }
    }

  private:
    template <class T>
    void add(StoredKind kind, std::span<T> memory, IndexRange loaded, List<char> of) {
        values.push_back(std::make_unique<SavedValuesOf<Engine, T>>(
            state_.context(), state_.geometry(), state_.communicators(), kind, memory, loaded, std::move(of)));
    }

    GroupState<Engine, Precision>& state_;
};

}  // namespace shardkit::detail
