// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>

#include "communicators.hpp"
#include "state.hpp"

namespace standin {

ncclResult_t check_config(State& s, const ncclConfig_t* config) {
    if (config == nullptr) { return ncclSuccess; }
    if (config->magic != 0xcafebeef) {
        return nccl_error(s, ncclInvalidArgument,
                          "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    }
    const int blocking = config->blocking;
    if (blocking != NCCL_CONFIG_UNDEF_INT && blocking != 0 && blocking != 1) {
        return nccl_error(s, ncclInvalidArgument, "Invalid config blocking attribute value");
    }
    const auto is_wrong = [](int ctas) { return ctas != NCCL_CONFIG_UNDEF_INT && ctas <= 0; };
    // As NCCL's parseCommConfig: a minimum alone is above the undefined maximum.
    if (is_wrong(config->minCTAs) || is_wrong(config->maxCTAs) || config->minCTAs > config->maxCTAs) {
        return nccl_error(s, ncclInvalidArgument, "Invalid config min/max channels attribute value");
    }
    return ncclSuccess;
}

bool is_blocking(const ncclConfig_t* config, bool otherwise) {
    return config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT ? otherwise : config->blocking == 1;
}

namespace {

/// As the header says that the caller was built with, which may be older and have fewer members.
ncclConfig_t read_config(const ncclConfig_t& given) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    std::memcpy(&config, &given, std::min(given.size, sizeof config));
    return config;
}

/// NCCL refuses two ranks on one GPU, once it knows all ranks.
void refuse_shared_devices(State& s, Clique& clique) {
    std::map<int, std::size_t> ranks;
    for (std::size_t rank = 0; rank < clique.members.size(); ++rank) {
        const int device = clique.members[rank].device;
        const auto [first, is_new] = ranks.try_emplace(device, rank);
        if (is_new) { continue; }
        std::ostringstream text;
        text << "Duplicate GPU detected : rank " << first->second << " and rank " << rank << " both on CUDA device "
             << device;
        return fail_all(s, clique, ncclInvalidUsage, text.str());
    }
}

/// The clique of that id that waits for this rank, made when there is none.
std::shared_ptr<Clique> find_clique(State& s, const std::string& id, std::size_t ranks) {
    auto& clique = s.forming[id];
    const bool dead = clique && std::any_of(clique->members.begin(), clique->members.end(),
                                            [](const auto& member) { return member.left; });
    if (!clique || dead) {
        clique = std::make_shared<Clique>();
        clique->id = ++s.cliques;
        clique->members.resize(ranks);
    }
    return clique;
}

ncclResult_t create(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config,
                    State& s, Lock& lock, ThreadState& thread) {
    if (comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
        return nccl_error(s, ncclInvalidArgument,
                          "Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(ranks));
    }
    *comm = nullptr;
    if (const ncclResult_t wrong = check_config(s, config); wrong != ncclSuccess) { return wrong; }
    if (s.devices == 0 || s.is_broken(thread.device) || refuse_in_capture(s) != cudaSuccess) {
        return nccl_error(s, ncclUnhandledCudaError, "Cuda failure on device " + std::to_string(thread.device));
    }
    const std::string key(id.internal, NCCL_UNIQUE_ID_BYTES);
    const auto clique = find_clique(s, key, static_cast<std::size_t>(ranks));
    if (clique->members.size() != static_cast<std::size_t>(ranks)) {
        return nccl_error(s, ncclInvalidArgument, "Bootstrap Root : mismatch in rank count from procs");
    }
    if (clique->member(rank).joined) {
        return nccl_error(s, ncclInvalidUsage,
                          "Bootstrap Root : rank " + std::to_string(rank) + " has already checked in");
    }
    clique->member(rank).joined = true;
    clique->member(rank).device = thread.device;
    if (++clique->joined == clique->members.size()) {
        s.forming.erase(key);
        refuse_shared_devices(s, *clique);
    }
    s.dirty = true;

    auto made = std::make_unique<ncclComm>();
    made->clique = clique;
    made->rank = rank;
    made->blocking = is_blocking(config, true);
    if (config != nullptr) { made->config = read_config(*config); }
    made->polls_left = made->blocking ? 0 : s.in_progress_polls;
    ncclComm_t handle = *comm = s.comms.add(std::move(made));
    if (!handle->blocking) { return handle->polls_left > 0 || !clique->complete() ? ncclInProgress : ncclSuccess; }
    if (thread.group_depth > 0) {
        thread.group_made.push_back(handle);
        return ncclSuccess;
    }
    const ncclResult_t result = await_creation(s, lock, handle);
    if (result != ncclSuccess && s.comms.find(handle) != nullptr) {
        leave(s, handle);
        *comm = nullptr;
    }
    return result;
}

void make_places(State& s, Clique& parent, Division& division) {
    std::map<int, std::vector<std::pair<int, std::size_t>>> colors;  // of (key, rank)
    for (std::size_t rank = 0; rank < division.wishes.size(); ++rank) {
        const auto& wish = division.wishes[rank];
        if (wish && wish->color >= 0) { colors[wish->color].emplace_back(wish->key, rank); }
    }
    division.places.resize(parent.members.size());
    for (auto& [color, ranks] : colors) {
        std::sort(ranks.begin(), ranks.end());
        const auto clique = std::make_shared<Clique>();
        clique->id = ++s.cliques;
        clique->joined = ranks.size();
        clique->members.resize(ranks.size());
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            clique->members[i].joined = true;
            clique->members[i].device = parent.members[ranks[i].second].device;
            division.places[ranks[i].second] = {clique, static_cast<int>(i)};
        }
    }
}

/// The n-th split or shrink of this rank.
ncclResult_t divide(const Division::Wish& wish, const std::set<int>& excluded, ncclComm_t comm, ncclComm_t* made,
                    const ncclConfig_t* config, State& s, Lock& lock, ThreadState& thread) {
    Clique& parent = *comm->clique;
    auto& division = parent.divisions[comm->member().divisions++];
    if (!division) {
        division = std::make_shared<Division>();
        division->excluded = excluded;
        division->wishes.resize(parent.members.size());
    } else if (division->excluded != excluded) {
        fail_all(s, parent, ncclInvalidUsage, "the ranks disagree about which are excluded");
    }
    division->wishes[static_cast<std::size_t>(comm->rank)] = wish;
    comm->division = division;
    comm->made = made;
    comm->made_blocking = is_blocking(config, comm->blocking);
    comm->made_config = config != nullptr ? read_config(*config) : comm->config;
    *made = nullptr;
    const auto present = std::count_if(division->wishes.begin(), division->wishes.end(),
                                       [](const auto& each) { return each.has_value(); });
    if (static_cast<std::size_t>(present) + excluded.size() == parent.members.size()) {
        make_places(s, parent, *division);
        parent.divisions.erase(comm->member().divisions - 1);
    }
    s.dirty = true;
    if (!comm->blocking) {
        // As NCCL's ncclCommInitChildComm: success, although the parent is in progress and *made still null.
        comm->polls_left = s.in_progress_polls;
        return ncclSuccess;
    }
    if (thread.group_depth > 0) {
        thread.group_made.push_back(comm);
        return ncclSuccess;
    }
    return await_creation(s, lock, comm);
}

}  // namespace
}  // namespace standin

using standin::Lock;
using standin::nccl_call;
using standin::nccl_error;
using standin::State;
using standin::ThreadState;

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    return nccl_call("ncclCommInitRank", [&](State& s, Lock& lock, ThreadState& thread) {
        return standin::create(comm, ranks, id, rank, nullptr, s, lock, thread);
    });
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    return nccl_call("ncclCommInitRankConfig", [&](State& s, Lock& lock, ThreadState& thread) {
        return standin::create(comm, ranks, id, rank, config, s, lock, thread);
    });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
    return nccl_call("ncclCommSplit", [&](State& s, Lock& lock, ThreadState& thread) {
        if (const ncclResult_t ready = standin::check_ready(s, comm); ready != ncclSuccess) { return ready; }
        if (made == nullptr || color < NCCL_SPLIT_NOCOLOR) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommSplit: invalid color, or a null pointer");
        }
        if (const ncclResult_t wrong = standin::check_config(s, config); wrong != ncclSuccess) { return wrong; }
        return standin::divide({color, key}, {}, comm, made, config, s, lock, thread);
    });
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* made,
                            ncclConfig_t* config, int flags) {
    return nccl_call("ncclCommShrink", [&](State& s, Lock& lock, ThreadState& thread) {
        const bool abort = (flags & NCCL_SHRINK_ABORT) != 0;
        const bool known = s.comms.find(comm) != nullptr;
        const bool quiet = known && comm->revoked && comm->polls_left == 0;
        if ((quiet || abort) && known && comm->member().proxy_error != ncclSuccess) {
            return nccl_error(s, comm->member().proxy_error, "the proxy thread has failed");
        }
        if (!quiet && (!abort || !known)) {
            if (const ncclResult_t ready = standin::check_ready(s, comm); ready != ncclSuccess) { return ready; }
        }
        if (made == nullptr || excluded == nullptr || excluded_count < 1) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommShrink: no rank is excluded, or a null pointer");
        }
        const std::set<int> out(excluded, excluded + excluded_count);
        if (*out.begin() < 0 || *out.rbegin() >= static_cast<int>(comm->clique->members.size()) ||
            out.count(comm->rank) != 0) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommShrink: invalid list of excluded ranks");
        }
        if (const ncclResult_t wrong = standin::check_config(s, config); wrong != ncclSuccess) { return wrong; }
        if (abort) {  // what is under way passes without effect; the parent is only there to be destroyed
            comm->member().left = true;
            comm->member().error = ncclSuccess;
        }
        return standin::divide({0, comm->rank}, out, comm, made, config, s, lock, thread);
    });
}
