// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/collective.hpp>
#include <shardkit/backend/mpi/group.hpp>
#include <shardkit/backend/mpi/host.hpp>
#include <shardkit/backend/mpi/world.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::mpi::detail {

/// One send, receive or send_receive. It is a rendezvous: both ends first exchange their calls (type, count, file and
/// line), and data moves only if these agree. A receiver that finds the sender's memory in the window of a rank of
/// its host copies the data from there; otherwise, and for little data, MPI moves it.
/// Cost:    two small messages, one each way, before the data, and an empty one behind a copy.
class Message : shardkit::detail::NotCopied {
  public:
    explicit Message(const Call& call) : call_(call) {}
    /// Cancels the message, so that a rank that gives up leaves no request that would still write to its caller's
    /// memory.
    ~Message() {
        for (MPI_Request& request : requests_) {
            if (request == MPI_REQUEST_NULL) { continue; }
            const MpiCall turn = call_.mpi();
            MPI_Cancel(&request);
            MPI_Request_free(&request);
        }
    }

    void send(host::ConstMemory values, std::size_t to) { outgoing_.emplace(Outgoing{values, to}); }
    void receive(host::Memory values, std::size_t from) { incoming_.emplace(Incoming{values, from}); }

    /// Sends and receives.
    /// @throws CommError when an end disagrees; PeerError when it has returned
    void pass() {
        const Call sends = as(Verb::send, outgoing_ ? outgoing_->values.count : 0);
        const Call receives = as(Verb::receive, incoming_ ? incoming_->values.count : 0);
        if (outgoing_) {
            own_offer_ = {{sends, sends.sequence}, outgoing_->values.at};
            exchange_records(sends, outgoing_->to, own_offer_, offer_tag, their_request_, request_tag, 0);
        }
        if (incoming_) {
            own_request_ = {{receives, receives.sequence}, nullptr};
            exchange_records(receives, incoming_->from, own_request_, request_tag, their_offer_, offer_tag, 2);
        }
        if (outgoing_) { finish(sends, outgoing_->to, 0); }
        if (incoming_) { finish(receives, incoming_->from, 2); }
        if (outgoing_) { require_agreement(sends, own_offer_, their_request_, call_.group.rank, outgoing_->to); }
        if (incoming_) { require_agreement(receives, their_offer_, own_request_, incoming_->from, call_.group.rank); }

        const bool is_read = outgoing_ && seen(outgoing_->to, call_.group.rank, own_offer_) != nullptr;
        const std::byte* const theirs = incoming_ ? seen(incoming_->from, incoming_->from, their_offer_) : nullptr;
        if (is_read) { call_.receive(nullptr, 0, 1, outgoing_->to, end_tag, requests_[0]); }
        if (theirs != nullptr) {
            copy(theirs);
            call_.send(nullptr, 0, 1, incoming_->from, end_tag, requests_[2]);
        }
        const std::size_t most = call_.world.options().message_elements;
        const std::size_t longest = std::max(sends.signature.count, receives.signature.count);
        for (std::size_t at = 0; at < longest; at += most) {
            if (incoming_ && theirs == nullptr && at < incoming_->values.count) {
                const host::Memory part = incoming_->values.part(at, std::min(most, incoming_->values.count - at));
                call_.receive(part.at, part.count, part.size, incoming_->from, data_tag, requests_[2]);
            }
            if (outgoing_ && !is_read && at < outgoing_->values.count) {
                const host::ConstMemory part =
                    outgoing_->values.part(at, std::min(most, outgoing_->values.count - at));
                call_.send(part.at, part.count, part.size, outgoing_->to, data_tag, requests_[0]);
            }
            if (outgoing_) { finish(sends, outgoing_->to, 0); }
            if (incoming_) { finish(receives, incoming_->from, 2); }
        }
    }

  private:
    static constexpr int offer_tag = 1;    // the sender's call
    static constexpr int request_tag = 2;  // the receiver's call
    static constexpr int data_tag = 3;
    static constexpr int end_tag = 4;  // the receiver has copied the data

    /// What an end tells the other: its call and, if it sends, where its data is in its own process.
    struct Record : shardkit::detail::CallRecord {
        const void* data = nullptr;

        Record() = default;
        Record(const shardkit::detail::CallRecord& call, const void* at) noexcept : CallRecord(call), data(at) {}
    };

    struct Outgoing {
        host::ConstMemory values;
        std::size_t to;
    };
    struct Incoming {
        host::Memory values;
        std::size_t from;
    };

    Call as(Verb verb, std::size_t count) const {
        Call call = call_;
        call.signature.verb = verb;
        call.signature.count = count;
        return call;
    }
    void exchange_records(const Call& call, std::size_t peer, const Record& own, int own_tag, Record& theirs,
                          int their_tag, std::size_t first) {
        call.receive(&theirs, sizeof(Record), 1, peer, their_tag, requests_[first]);
        call.send(&own, sizeof(Record), 1, peer, own_tag, requests_[first + 1]);
    }
    void finish(const Call& call, std::size_t peer, std::size_t first) {
        call.lane.await(call, std::span<MPI_Request>(requests_).subspan(first, 2), peer);
    }
    /// Returns where this process finds the data of a sender that exchanges it with `peer`; null if MPI moves it. The
    /// same on both ends.
    const std::byte* seen(std::size_t peer, std::size_t sender, const Record& offer) const noexcept {
        const std::size_t bytes = offer.signature.count * size_of(offer.signature.in);
        if (bytes <= carried_bytes || !call_.group.is_here(peer) || !call_.world.shares_memory()) { return nullptr; }
        return static_cast<const std::byte*>(
            call_.world.host().find(call_.group.world_ranks[sender], offer.data, bytes));
    }
    void copy(const std::byte* from) const noexcept {
        // The bytes as if each rank of the host sent as many, in a ring.
        const host::detail::Store store =
            host::detail::store_for(2 * call_.group.neighbours().size() * incoming_->values.bytes());
        host::detail::copy_elements(from, incoming_->values.at, incoming_->values.bytes(), store);
        host::detail::finish(store);
    }
    static void require_agreement(const Call& call, const Record& offer, const Record& request, std::size_t from,
                                  std::size_t to) {
        if (offer.signature.in == request.signature.in && offer.signature.count == request.signature.count) {
            return;
        }
        throw CommError("mpi", call.doing(),
                        shardkit::detail::disagreement("", call.group.world_ranks[from], offer.text(),
                                                       call.group.world_ranks[to], request.text()),
                        call.where);
    }

    const Call& call_;
    std::optional<Outgoing> outgoing_;
    std::optional<Incoming> incoming_;
    Record own_offer_;
    Record own_request_;
    Record their_offer_;
    Record their_request_;
    std::array<MPI_Request, 4> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

}  // namespace shardkit::mpi::detail
