// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "operation.hpp"

namespace standin {

enum class Kind { all_gather, reduce_scatter, all_reduce, broadcast, send, receive };

/// What all ranks of a communication must agree on; of a send and its receive, count and type.
struct Signature {
    Kind kind;
    std::size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    bool symmetric = false;  // by the kernels for symmetric windows

    bool operator==(const Signature&) const = default;
};

/// Names a communication within its clique: the n-th collective, or the n-th message from one rank to another.
struct Key {
    int from = -1;
    int to = -1;
    std::uint64_t index = 0;

    bool collective() const { return from < 0; }
    auto operator<=>(const Key&) const = default;
};

/// Where memory lies in the windows of its communicator: peers look for theirs at the same place.
struct WindowPlace {
    std::uint64_t window = 0;  // the n-th that the rank made
    std::size_t offset = 0;

    bool operator==(const WindowPlace&) const = default;
};
/// Of what peers read and write in a collective; nothing for memory that is in no window.
struct WindowPlaces {
    std::optional<WindowPlace> read;
    std::optional<WindowPlace> written;

    bool operator==(const WindowPlaces&) const = default;
};

/// A communication under way.
struct Rendezvous {
    struct Party {
        int rank = 0;
        bool launched = false;
        bool arrived = false;
        const void* send = nullptr;
        void* receive = nullptr;
        std::shared_ptr<Mark> mark;
        WindowPlaces places{};
    };
    Key key;
    Signature signature;
    std::vector<Party> parties;
    bool mixed = false;  // of different calls
    bool done = false;
};

struct Clique;

/// A collective creation of communicators out of a parent: the n-th split or shrink of each rank.
struct Division {
    struct Wish {
        int color;
        int key;
    };
    std::set<int> excluded;
    std::vector<std::optional<Wish>> wishes;
    struct Place {
        std::shared_ptr<Clique> clique;  // empty: no communicator for this rank
        int rank = 0;
    };
    std::vector<Place> places;  // once all have come

    bool complete() const { return !places.empty(); }
};

/// A window that all ranks of a communicator make: the n-th of each.
struct WindowMeeting {
    std::size_t bytes = 0;
    std::size_t come = 0;
};

/// What the ranks of a communicator share.
struct Clique {
    struct Member {
        bool joined = false;
        int device = 0;
        bool killed = false;
        bool left = false;  // aborted or destroyed: its operations pass without effect
        ncclResult_t error = ncclSuccess;
        ncclResult_t proxy_error = ncclSuccess;  // of the thread that talks to the network: outlives a revoke
        std::string text;
        std::uint64_t collectives = 0;
        std::uint64_t divisions = 0;
        std::uint64_t windows = 0;
    };
    std::uint64_t id = 0;
    std::vector<Member> members;
    std::size_t joined = 0;
    std::map<Key, std::shared_ptr<Rendezvous>> open;
    std::map<std::pair<int, int>, std::uint64_t> sends, receives;
    std::map<std::uint64_t, std::shared_ptr<Division>> divisions;
    std::map<std::uint64_t, std::shared_ptr<WindowMeeting>> windows;

    Member& member(int rank) { return members[static_cast<std::size_t>(rank)]; }
    bool complete() const { return joined == members.size(); }
};

/// One rank's call of a communication.
struct Request {
    std::shared_ptr<Clique> clique;
    int rank;
    Signature signature;
    int peer;  // of a send or receive
    const void* send;
    void* receive;
    WindowPlaces places{};
    CUevent_st* started = nullptr;  // recorded when the kernel has started
};

/// A communicator's kernel that has started on a device and waits for its peers there.
struct Resident {
    int device;
    std::uint64_t clique;
    int ctas;
    std::shared_ptr<Mark> mark;
};

/// What one ncclGroup queues in one stream: done when all its communications are.
struct Batch final : Operation {
    struct Part {
        std::shared_ptr<Clique> clique;
        std::shared_ptr<Rendezvous> rendezvous;
        std::size_t party;
    };
    std::vector<Part> parts;
    std::vector<std::shared_ptr<Mark>> after;  // what its communicators were given before, in whatever stream

    bool run(State& state) override;
    bool uses(const Range& range) const override;
};

std::size_t element_bytes(ncclDataType_t type);
const char* name(Kind kind);
/// The memory that a rank's part in a communication reads and writes.
std::vector<Range> ranges(const Signature& signature, std::size_t ranks, bool is_root, const void* send,
                          void* receive);
/// Moves the data of a communication at which all parties have arrived. `same_bits`: all-reduces add in one order for
/// all ranks.
void move_data(const Rendezvous& rendezvous, bool same_bits);
/// An error that all ranks see: nothing of this clique completes any more.
void fail_all(State& state, Clique& clique, ncclResult_t code, const std::string& text);
/// Whether that rank's operations no longer take part.
bool stuck(const State& state, Clique& clique, int rank);
/// Enters a rank's call at the communication it belongs to.
Batch::Part enter(State& state, const Request& request, const std::shared_ptr<Mark>& mark);

/// Calls that a thread has collected between ncclGroupStart and ncclGroupEnd, or that a non-blocking communicator
/// has yet to queue.
struct Launch {
    struct Call {
        Request request;
        CUstream_st* stream;
    };
    std::vector<Call> calls;
    std::vector<ncclComm_t> comms;
    std::string refusal;  // of a call that NCCL finds impossible when it prepares the launch
};

/// The thread in which NCCL goes on with what a non-blocking communicator was asked to make. It writes the new handle
/// where the user wants it, under no lock: who reads that before a poll has said that all is over has a data race.
class LateWrite {
  public:
    template <class T>
    LateWrite(T* where, T value) {
        thread_ = std::thread([this, where, value] {
            *where = value;
            over_.store(true, std::memory_order_release);
        });
    }
    LateWrite(const LateWrite&) = delete;
    LateWrite& operator=(const LateWrite&) = delete;
    ~LateWrite() { thread_.join(); }
    bool over() const { return over_.load(std::memory_order_acquire); }

  private:
    std::atomic<bool> over_ = false;
    std::thread thread_;
};

}  // namespace standin

struct ncclComm {
    std::shared_ptr<standin::Clique> clique;
    int rank = 0;
    bool blocking = true;
    bool finalizing = false;
    bool finalized = false;
    bool revoked = false;
    int polls_left = 0;
    std::shared_ptr<standin::Launch> launch;  // not queued yet
    std::shared_ptr<standin::Division> division;
    ncclComm_t* made = nullptr;                     // where the division's communicator goes
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;  // as it was given
    ncclConfig_t made_config = NCCL_CONFIG_INITIALIZER;
    bool made_blocking = true;
    std::vector<std::shared_ptr<standin::Mark>> outstanding;
    std::map<void*, standin::Range> registrations;  // by handle
    struct Made {
        standin::Range range;
        std::uint64_t number;  // among those that the rank made
    };
    std::map<void*, Made> windows;
    /// A window under way, and where its handle goes.
    struct Window {
        std::shared_ptr<standin::WindowMeeting> meeting;
        ncclWindow_t* where;
        ncclWindow_t handle;
    };
    std::vector<Window> unwritten;
    std::vector<std::unique_ptr<standin::LateWrite>> writes;

    standin::Clique::Member& member() const { return clique->member(rank); }
};

namespace standin {

/// A communicator that has ended, and what the call that ends it waits for.
struct Ending {
    std::shared_ptr<Clique> clique;  // the member stays where it is
    int rank = 0;
    std::vector<std::shared_ptr<Mark>> marks;
};

}  // namespace standin
