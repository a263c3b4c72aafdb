// nccl.h asks for it, and needs nothing of it.
#pragma once
