// SPDX-License-Identifier: Apache-2.0
// What shardkit uses of the CUDA driver API, through cudaGetDriverEntryPointByVersion: see cuda_runtime_api.h.
#pragma once

typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_DEVICE = 101 } CUresult;
typedef int CUdevice;
