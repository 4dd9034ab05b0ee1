// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/host_stream.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/call.hpp>
#include <shardkit/backend/mpi/datatype.hpp>
#include <shardkit/backend/mpi/enter.hpp>
#include <shardkit/backend/mpi/exchange.hpp>
#include <shardkit/backend/mpi/message.hpp>
#include <shardkit/backend/mpi/pieces.hpp>
#include <shardkit/backend/mpi/split.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/comm/traffic_log.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::mpi {

/// A rank's end of a group of MPI processes. `Sums` says how reductions add: Exchange (in rank order, the same bits
/// as the threads engine) or Staged (MPI's own).
///
/// A cheap handle on a World, used by its rank's thread only. The verbs' contracts are those of the functions in
/// comm/, which also check the sizes. On an inline stream a verb returns when the data is there; on the World's
/// communication stream it runs while the rank goes on, and an error is thrown by the next wait.
/// Errors: CommError with MPI's text when a call fails, on every rank when the ranks' calls disagree (before any
/// output is written), and after Options::timeout; PeerError when a rank that is needed has returned.
template <class Sums = Exchange>
class Communicator {
  public:
    using Stream = host::HostStream;

    explicit Communicator(World& world) : Communicator(world, world.world_group(), "world") {}

    std::size_t rank() const noexcept { return group_->rank; }
    std::size_t size() const noexcept { return group_->size(); }
    std::string_view axes() const noexcept { return *axes_; }
    /// What this rank has communicated, over all its communicators. Waits for verbs that are under way.
    TrafficLog& traffic() const { return world_->traffic(); }

    Communicator named(std::string_view axes) const {
        world_->drain();  // the log grows, and pending verbs write to it
        return Communicator(*world_, *group_, axes);
    }

    /// @throws std::invalid_argument when color is 2^63 or more
    Communicator split(std::size_t color, std::size_t key, std::string_view axes,
                       SourceLocation where = SourceLocation::current()) const {
        if (color >> 63U != 0) {
            throw_invalid_argument(where, "split over ", *axes_, ": color ", color, ", expected less than 2^63");
        }
        Group made;
        constexpr std::size_t wish = 24;
        call({.verb = Verb::split}, Stream(), size() * wish, where, [&made, color, key](const Call& call) {
            made = split_group(call, color, key);
            return (call.group.size() - 1) * wish;
        });
        return Communicator(*world_, world_->add_group(std::move(made)), axes);
    }

    void barrier(const Stream& stream, SourceLocation where = SourceLocation::current()) const {
        call({.verb = Verb::barrier}, stream, 0, where, [](const Call& call) {
            // Comparing calls is a barrier already.
            if (call.world.options().compare_calls) { return std::size_t{0}; }
            call.world.complete(call, "MPI_Ibarrier",
                                [&](MPI_Request* request) { return MPI_Ibarrier(call.group.comm, request); });
            return std::size_t{0};
        });
    }

    template <Element T>
    void all_gather(std::span<const T> shard, std::span<T> full, const Stream& stream, SourceLocation where) const {
        gather(shard.data(), shard.size(), full, stream, where);
    }
    template <Element T>
    void all_gather_in_place(std::span<T> full, const Stream& stream, SourceLocation where) const {
        const std::size_t k = full.size() / size();
        gather(static_cast<const T*>(full.data() + rank() * k), k, full, stream, where);
    }

    template <Element In, Element Out>
    void reduce_scatter(ReduceOp op, std::span<const In> full, std::span<Out> shard, const Stream& stream,
                        SourceLocation where) const {
        scatter(op, full, shard.data(), stream, where);
    }
    template <Element T>
    void reduce_scatter_in_place(ReduceOp op, std::span<T> full, const Stream& stream, SourceLocation where) const {
        scatter(op, std::span<const T>(full), full.data() + rank() * (full.size() / size()), stream, where);
    }

    template <Element In, Element Out>
    void all_reduce(ReduceOp op, std::span<const In> input, std::span<Out> output, const Stream& stream,
                    SourceLocation where) const {
        const Signature signature{Verb::all_reduce, element_type_of<In>, element_type_of<Out>, op, input.size(), 0};
        call(signature, stream, input.size_bytes(), where, [=](const Call& call) {
            return Sums::template all_reduce<In, Out>(call, op, input.data(), input.size(), output.data());
        });
    }
    template <Element T>
    void all_reduce_in_place(ReduceOp op, std::span<T> values, const Stream& stream, SourceLocation where) const {
        all_reduce(op, std::span<const T>(values), values, stream, where);
    }

    template <Element T>
    void broadcast(std::span<T> values, std::size_t root, const Stream& stream, SourceLocation where) const {
        const Signature signature{Verb::broadcast, element_type_of<T>, element_type_of<T>,
                                  ReduceOp::sum,   values.size(),      root};
        call(signature, stream, values.size_bytes(), where, [=](const Call& call) {
            for_each_piece(call, values.size(), [&](std::size_t at, int size) {
                call.world.complete(call, "MPI_Ibcast", [&](MPI_Request* request) {
                    return MPI_Ibcast(values.data() + at, size, datatype<T>(), static_cast<int>(root),
                                      call.group.comm, request);
                });
            });
            return call.group.rank == root ? 0 : values.size_bytes();
        });
    }

    template <Element T>
    void all_to_all(std::span<const T> sent, std::span<T> received, const Stream& stream,
                    SourceLocation where) const {
        const Signature signature{Verb::all_to_all, element_type_of<T>, element_type_of<T>,
                                  ReduceOp::sum,    sent.size(),        0};
        call(signature, stream, sent.size_bytes(), where, [=](const Call& call) {
            const std::size_t self = call.group.rank;
            const std::size_t k = sent.size() / call.group.size();
            if (k <= call.world.options().message_elements) {
                const int size = static_cast<int>(k);
                if (k > 0) {
                    call.world.complete(call, "MPI_Ialltoall", [&](MPI_Request* request) {
                        return MPI_Ialltoall(sent.data(), size, datatype<T>(), received.data(), size, datatype<T>(),
                                             call.group.comm, request);
                    });
                }
            } else {
                host::copy_elements(sent.data() + self * k, received.data() + self * k, k);
                exchange_pieces<T>(
                    call, k, [&](std::size_t to) { return sent.data() + to * k; },
                    [&](std::size_t from) { return received.data() + from * k; });
            }
            return (call.group.size() - 1) * k * sizeof(T);
        });
    }

    template <Element T>
    void send(std::span<const T> values, std::size_t to, const Stream& stream, SourceLocation where) const {
        pass<T>(stream, where, [=](const Communicator& self, Message<T>& message) {
            message.send(values, to);
            message.pass();
            self.record_message(Verb::send, values.size_bytes(), to);
        });
    }
    template <Element T>
    void receive(std::span<T> values, std::size_t from, const Stream& stream, SourceLocation where) const {
        pass<T>(stream, where, [=](const Communicator& self, Message<T>& message) {
            message.receive(values, from);
            message.pass();
            self.record_message(Verb::receive, values.size_bytes(), from);
        });
    }
    template <Element T>
    void send_receive(std::span<const T> sent, std::size_t to, std::span<T> received, std::size_t from,
                      const Stream& stream, SourceLocation where) const {
        pass<T>(stream, where, [=](const Communicator& self, Message<T>& message) {
            message.send(sent, to);
            message.receive(received, from);
            message.pass();
            self.record_message(Verb::receive, received.size_bytes(), from);
            self.record_message(Verb::send, sent.size_bytes(), to);
        });
    }

  private:
    Communicator(World& world, Group& group, std::string_view axes)
        : world_(&world),
          group_(&group),
          axes_(&world.label(axes)),
          first_row_(world.traffic().add_communicator(axes)) {}

    /// Everything that collectives have in common; `body(call)` moves the data and returns the bytes that went
    /// between this rank and its peers.
    template <class Body>
    void call(const Signature& signature, const Stream& stream, std::size_t payload, SourceLocation where,
              const Body& body) const {
        world_->execute(stream, where, [self = *this, signature, payload, where, body] {
            Call call{*self.world_, *self.group_, *self.axes_, signature, where};
            enter(call);
            self.record(signature.verb, payload, body(static_cast<const Call&>(call)));
        });
    }
    template <class T, class Body>
    void pass(const Stream& stream, SourceLocation where, const Body& body) const {
        world_->execute(stream, where, [self = *this, where, body] {
            const Signature signature{Verb::send, element_type_of<T>, element_type_of<T>, ReduceOp::sum, 0, 0};
            const Call call{*self.world_, *self.group_, *self.axes_, signature, where};
            Message<T> message(call);
            body(self, message);
        });
    }
    void record(Verb verb, std::size_t payload, std::size_t moved) const noexcept {
        if (size() > 1) { world_->record(first_row_, verb, payload, moved); }
    }
    void record_message(Verb verb, std::size_t bytes, std::size_t peer) const noexcept {
        record(verb, bytes, peer == rank() ? 0 : bytes);
    }

    template <class T>
    void gather(const T* shard, std::size_t k, std::span<T> full, const Stream& stream, SourceLocation where) const {
        const Signature signature{Verb::all_gather, element_type_of<T>, element_type_of<T>, ReduceOp::sum, k, 0};
        call(signature, stream, full.size_bytes(), where, [=](const Call& call) {
            T* const own = full.data() + call.group.rank * k;
            if (k <= call.world.options().message_elements) {
                const int size = static_cast<int>(k);
                const void* const from = shard == own ? MPI_IN_PLACE : static_cast<const void*>(shard);
                if (k > 0) {
                    call.world.complete(call, "MPI_Iallgather", [&](MPI_Request* request) {
                        return MPI_Iallgather(from, size, datatype<T>(), full.data(), size, datatype<T>(),
                                              call.group.comm, request);
                    });
                }
            } else {
                if (shard != own) { host::copy_elements(shard, own, k); }
                exchange_pieces<T>(
                    call, k, [&](std::size_t) { return static_cast<const T*>(own); },
                    [&](std::size_t from) { return full.data() + from * k; });
            }
            return (call.group.size() - 1) * k * sizeof(T);
        });
    }

    template <class In, class Out>
    void scatter(ReduceOp op, std::span<const In> full, Out* shard, const Stream& stream,
                 SourceLocation where) const {
        const Signature signature{
            Verb::reduce_scatter, element_type_of<In>, element_type_of<Out>, op, full.size(), 0};
        call(signature, stream, full.size_bytes(), where, [=](const Call& call) {
            return Sums::template reduce_scatter<In, Out>(call, op, full.data(), full.size() / call.group.size(),
                                                          shard);
        });
    }

    World* world_;
    Group* group_;
    const std::string* axes_;
    std::size_t first_row_ = 0;
};

}  // namespace shardkit::mpi
