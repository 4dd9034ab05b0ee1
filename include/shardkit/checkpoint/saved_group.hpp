// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/values_by_kind.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/groups.hpp>

namespace shardkit::detail {

/// One group of a state: lists what it and its optimizers hold, and reads and writes it.
class SavedGroup : NotCopied {
  public:
    explicit SavedGroup(Group& group) : group_(group) {}

    Group& group() const noexcept { return group_; }
    const GroupGeometry& geometry() const noexcept { return group_.geometry(); }

    /// Lists the values that are saved of the group itself.
    void list_own() {
        const GroupGeometry& geometry = group_.geometry();
        List<char> all(geometry.parameters.size());
        List<char> trained(geometry.parameters.size());
        for (std::size_t p = 0; p < all.size(); ++p) {
            all[p] = 1;
            trained[p] = geometry.parameters[p].frozen ? 0 : 1;
        }
        for (const HeldMemory& held : group_.held()) {
            if (held.role == Role::parameters || (held.role == Role::master && geometry.sizes.codes.gathered)) {
                // Of codes the masters are the parameters.
                add({Role::parameters, {}}, held, all).code_scale = group_.elements().code_scale;
            } else if (held.role == Role::master && geometry.splits_master()) {
                values.push_back(std::make_unique<SavedValues>(
                    StoredKind{Role::master, {}}, ElementType::fp32, geometry, trained,
                    SavedValues::Copied{[this](std::span<std::byte> copy) {
                                            const auto joined = group_.join_masters();
                                            host::AnyKernels::copy_bytes(stream(), joined.data(), copy.data(),
                                                                         copy.size());
                                        },
                                        [this](std::span<const std::byte> copy) {
                                            const auto joined = group_.buffer_of_masters();
                                            copy_in(copy, joined.span());
                                            group_.split_masters(joined.span());
                                        }}));
            } else if (held.role == Role::master) {
                add({Role::master, {}}, held, trained);
            }
        }
    }
    /// Lists what an optimizer holds of it.
    void list(const OptimizerMemory& optimizer) {
        of_optimizers_.push_back(optimizer.reader);
        for (std::size_t i = 0; i < optimizer.held.size(); ++i) {
            const HeldMemory& held = optimizer.held[i];
            List<char> of = held.of;
            if (held.shape.rows > 0) {
                of.resize(geometry().parameters.size());
                of[held.shape.parameter] = 1;
            } else if (held.unit == 1) {
                const bool in_blocks = held.values.type() == ElementType::uint8;
                forms.push_back({values.size(), in_blocks, held.square});
            }
            add({Role::states, held.state, held.unit > 1}, held, std::move(of)).rule = optimizer.rule;
        }
    }

    /// Checks that nothing is in progress that a checkpoint does not hold.
    /// @throws UsageError within an accumulation, or while a save of the group is pending
    void require_idle(std::string_view verb, SourceLocation where) const {
        if (group_.step().busy()) {
            throw_usage_error(where, verb, ": '", group_.path(),
                              "' is within an accumulation or has reduced gradients, which no checkpoint holds: step "
                              "or drop them before");
        }
        if (group_.reader() != nullptr) {
            throw_usage_error(where, verb, ": an earlier save of '", group_.path(),
                              "' is still pending: commit it before");
        }
    }
    void set_reader(MemoryReader* reader) const noexcept {
        group_.set_reader(reader);
        for (MemoryReader** const of : of_optimizers_) { *of = reader; }
    }

    /// Returns what accesses the memory of values that are not `on_host`, ordered after the compute stream's work.
    std::unique_ptr<engine::MemoryCopies> copies(SourceLocation where) const {
        return group_.rank().world().memory_copies(stream(), where);
    }
    /// Copies elements to the group's or an optimizer's memory, in the compute stream's order.
    void copy_in(std::span<const std::byte> from, const StoredElements& to) const {
        host::AnyKernels::copy_bytes(stream(), from.data(), to.data(), from.size());
    }
    /// Calls `use(parameter, elements)` with all elements of the whole tensor, row-major, for each of `parameters`.
    /// Collective over the shard group, and over tp where a tensor is split over it. Memory: the group's full buffer.
    template <class Use>
    void whole(const SavedValues& of, std::span<const std::size_t> parameters, const Use& use,
               SourceLocation where) const {
        if (!of.is_copy()) { return whole_of(of.geometry(), of.to_save(), parameters, use, where); }
        const auto joined = group_.join_masters();  // which alone are saved from copies
        whole_of(of.geometry(), joined.span(), parameters, use, where);
        stream().settle();
    }
    /// Puts what was loaded into copies in place.
    void take_copies() const {
        for (const auto& each : values) { each->end_load(); }
    }

    List<std::unique_ptr<SavedValues>> values;
    /// The states among them, in their order.
    List<StateForm> forms;

  private:
    Stream stream() const { return group_.rank().compute_stream(); }
    /// Where that is the host's, of an offloaded group, the host waits for the compute stream, behind which steps
    /// have stored them.
    SavedValues& add(const StoredKind& kind, const HeldMemory& held, List<char> of) {
        const bool offloaded = kind.role != Role::parameters && geometry().offloads();
        if (offloaded) { stream().synchronize(); }
        auto& added = *values.push_back(std::make_unique<SavedValues>(kind, geometry(), held, std::move(of)));
        added.on_host = host_reads(stream()) || offloaded;
        added.holder = this;
        return added;
    }
    template <class Use>
    void whole_of(const GroupGeometry& geometry, const StoredElements& part, std::span<const std::size_t> parameters,
                  const Use& use, SourceLocation where) const {
        auto& rank = group_.rank();
        HostBuffer<std::uint8_t> gathered;
        const StoredElements full = whole_group(rank, group_.communicators(), geometry, part, gathered,
                                                "a group gathered for a checkpoint", stream(), where);
        std::vector<std::byte> host;
        for (const std::size_t parameter : parameters) {
            const PlacedParameter& its = geometry.parameters[parameter];
            const WholeTensor tensor(rank, group_.communicators(), geometry, parameter,
                                     full.subspan(its.range.begin, its.range.size()), stream(), where);
            host.resize(its.shape.numel() * size_of(part.type()));
            tensor.copy(host.data());
            use(parameter, host);
        }
    }

    Group& group_;
    List<MemoryReader**> of_optimizers_;
};

}  // namespace shardkit::detail
