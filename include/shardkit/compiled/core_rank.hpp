// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/compiled/core_group.hpp>
#include <shardkit/compiled/grid_mesh.hpp>
#include <shardkit/rank/all_reduce_value.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/verbs/communicator.hpp>

// A rank of the core.

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

class ContextOf : public Rank {
  public:
    explicit ContextOf(shardkit::Rank& rank) : core(rank) {}

    std::size_t rank() const noexcept override { return core.rank(); }
    std::size_t world_size() const noexcept override { return core.world_size(); }
    const AxisGrid& grid() const noexcept override { return core.grid(); }
    const RankOptions& options() const noexcept override { return core.options(); }
    const Communicator& world() const noexcept override { return core.world(); }
    void communicator(const AxisGrid& grid, const AxisNames& axes, void (*take)(void* to, const Communicator& made),
                      void* to, SourceLocation where) override {
        take(to, core.communicator(grid, axes, where));
    }
    void adopt(const AxisNames& axes, const Communicator& adopted, std::size_t shard_group,
               SourceLocation where) override {
        shard_group == 0 ? core.adopt(axes, adopted, where) : core.adopt(axes, adopted, shard_group, where);
    }
    Stream stream(StreamFor which) const noexcept override {
        const auto& streams = core.streams();
        return which == StreamFor::compute         ? streams.compute
               : which == StreamFor::communication ? streams.communication
                                                   : streams.reduction;
    }
    void synchronize() const override { core.synchronize(); }
    void settle() const noexcept override { core.settle(); }
    TrafficLog& traffic() noexcept override { return core.traffic(); }
    void list_recent_calls(std::vector<recorder::RecentCall>& into) const override { into = core.recent_calls(); }
    void set_step(std::uint32_t step) noexcept override { core.set_step(step); }
    void compare_calls(SourceLocation where) const override { core.compare_calls(where); }
    std::int64_t begin_deadline(std::int64_t milliseconds, SourceLocation where) const override {
        if (milliseconds <= 0) {
            throw_invalid_argument(where, "deadline: ", milliseconds, " ms, expected at least 1");
        }
        return core.world().label().journal.exchange_limit(milliseconds);
    }
    void end_deadline(std::int64_t before) const noexcept override {
        core.world().label().journal.exchange_limit(before);
    }
    void require_memory(const void* data, std::size_t bytes, std::string_view what,
                        SourceLocation where) const override {
        core.require_memory(data, bytes, what, where);
    }
    shardkit::detail::PlacedMemory allocate(std::size_t bytes, bool local) const override {
        // Of the widest elements, so that the memory is aligned for all.
        const std::size_t count = bytes / sizeof(double) + (bytes % sizeof(double) != 0 ? 1 : 0);
        using Buffer = HostBuffer<double>;
        auto kept = std::make_unique<Buffer>(local ? core.local_buffer<double>(count) : core.buffer<double>(count));
        void* const data = kept->data();
        return {data, kept.release(), [](void* owner) noexcept { delete static_cast<Buffer*>(owner); }};
    }
    void read(const void* from, std::span<std::byte> to) const override {
        const std::span bytes(static_cast<const std::uint8_t*>(from), to.size());
        host::AnyKernels::copy_out(core.compute_stream(), bytes,
                                   std::span(reinterpret_cast<std::uint8_t*>(to.data()), to.size()));
    }
    void all_reduce(const Communicator& comm, ReduceOp op, ElementType type, void* value,
                    SourceLocation where) override {
        reduce_if<double, float, bf16, fp16, std::int64_t, std::uint64_t, std::int32_t, std::uint32_t, std::uint8_t>(
            comm, op, type, value, where);
    }
    double exact_sum(const Communicator& comm, std::span<const double> values, SourceLocation where) override {
        return shardkit::exact_sum(core, comm, values, where);
    }
    /// Defined in define_core.hpp, so that the files of other engines compile no groups.
    Group* make_group(const shardkit::detail::ElementTypes& elements, const shardkit::detail::GroupValues& values,
                      std::span<std::byte> adopted_parameters, std::span<std::byte> adopted_gradients,
                      SourceLocation where) override;
    LossScale* make_loss_scale(const LossScaleOptions& options, SourceLocation where) override {
        return new LossScaleOf(shardkit::LossScale(core, options, where));
    }

    shardkit::Rank& core;

  private:
    template <class... T>
    void reduce_if(const Communicator& comm, ReduceOp op, ElementType type, void* value, SourceLocation where) {
        const auto as = [&]<class One>(std::type_identity<One>) {
            if (type == element_type_of<One>) {
                One& number = *static_cast<One*>(value);
                number = shardkit::all_reduce_value(core, comm, number, op, where);
            }
        };
        (as(std::type_identity<T>{}), ...);
    }
    /// The elements of a precision, for an error.
    static std::string name_of(const shardkit::detail::ElementTypes& types) {
        return shardkit::detail::concat(name(types.gather), "/", name(types.gradient), "/", name(types.reduction),
                                        "/", name(types.master));
    }
    template <class P>
    void make_if(Group*& made, std::string& known, const shardkit::detail::ElementTypes& elements,
                 const shardkit::detail::GroupValues& values, const shardkit::detail::AdoptedElements& adopted,
                 SourceLocation where) {
        constexpr auto& types = shardkit::detail::element_types<P>;
        known += (known.empty() ? "" : ", ") + name_of(types);
        if (made == nullptr && elements == types) {
            made = new GroupOf(std::type_identity<P>{}, core, values, adopted, where);
        }
    }
    template <class... P, class... Arguments>
    void make_of(Precisions<P...> /*all*/, Arguments&&... arguments) {
        (make_if<P>(arguments...), ...);
    }
};
inline shardkit::Rank& core_of(const Rank& rank) noexcept { return static_cast<const ContextOf&>(rank).core; }

template <class T>
struct Owned {
    template <class... Arguments>
    explicit Owned(Arguments&&... arguments) : object(std::forward<Arguments>(arguments)...) {}
    T object;
};
/// A rank that a trainer's file owns.
class OwnedContext final : private Owned<MeshRank<GridMesh>>, public ContextOf {
    using OwnRank = Owned<MeshRank<GridMesh>>;

  public:
    template <class... Arguments>
    explicit OwnedContext(const AxisGrid& grid, Arguments&&... arguments)
        : OwnRank(GridMesh{grid}, std::forward<Arguments>(arguments)...), ContextOf(OwnRank::object) {}
};

}  // namespace SHARDKIT_CHECKED_BUILD
